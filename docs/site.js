// A frame is as high as the board in it, and has the colours that the reader chose. Both come from the same place, so the page may look.
function fit(frame) {
  const inside = frame.contentDocument
  if (!inside || !inside.body || !inside.body.firstElementChild) return
  const resize = () => { frame.style.height = Math.ceil(inside.body.getBoundingClientRect().height) + 4 + "px" }
  const paint = () => {
    const dark = document.body.dataset.mdColorScheme === "slate"
    inside.documentElement.style.colorScheme = dark ? "dark" : "light"
    for (const sheet of inside.styleSheets) for (const rule of sheet.cssRules)
      if (rule.media && (rule.ours || rule.media.mediaText.includes("prefers-color-scheme: dark"))) {
        rule.ours = true
        rule.media.mediaText = dark ? "all" : "not all"
      }
  }
  const title = inside.querySelector("h1")
  if (title && title.textContent.trim() === document.querySelector("h1").firstChild.textContent.trim()) title.hidden = true   // It is said above the frame
  for (const card of inside.querySelectorAll("details")) card.open = false   // The site's own page has it below the board
  new ResizeObserver(resize).observe(inside.body)
  new MutationObserver(paint).observe(document.body, {attributeFilter: ["data-md-color-scheme"]})
  resize()
  paint()
}
for (const frame of document.querySelectorAll("iframe.board")) {
  frame.addEventListener("load", () => fit(frame))
  if (frame.contentDocument && frame.contentDocument.readyState === "complete") fit(frame)
}

// The theme puts the copy button of each block of code into a <nav>. A screen reader lists these, so each has a name.
function name() { document.querySelectorAll("nav.md-code__nav").forEach((bar, i) => bar.ariaLabel || (bar.ariaLabel = `Code ${i + 1}`)) }
new MutationObserver(name).observe(document.body, {childList: true, subtree: true})
name()
