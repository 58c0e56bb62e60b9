// A frame is as high as the board in it. Both come from the same place, so the page may look.
function fit(frame) {
  const inside = frame.contentDocument
  if (!inside || !inside.body || !inside.body.firstElementChild) return
  const resize = () => { frame.style.height = Math.ceil(inside.body.getBoundingClientRect().height) + 4 + "px" }
  new ResizeObserver(resize).observe(inside.body)
  resize()
}
for (const frame of document.querySelectorAll("iframe.board")) {
  frame.addEventListener("load", () => fit(frame))
  if (frame.contentDocument && frame.contentDocument.readyState === "complete") fit(frame)
}
