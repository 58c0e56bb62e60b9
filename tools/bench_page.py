"""Measure exported pages in Chromium: sizes, the time of a message with a position, evaluations a second, and the time of a move.

    python tools/bench_page.py > nbs/data/bench_page_2cores.json

Evaluations a second are the median over searches of 400 simulations, the time of a move that of 64 simulations. Each page
belongs to an agent of the package. The browser opens it from a file and without network. Run it on a quiet
machine: a page computes with one core, and Chromium draws with the other.
"""
import json, platform, shutil, tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from alphazero_nb.web.page import export_page

GAMES = ["tictactoe", "connect4", "dots(rows=3,cols=3)", "gomoku(size=9)", "chess(variant=gardner)"]
LOOKS, MOVES, SIMULATIONS, LONG = 300, 6, 64, 400
MEASURE = """async ([looks, moves, simulations, long]) => {
  at("seat").value = "all";
  const middle = values => values.sort((a, b) => a - b)[values.length >> 1];
  let line = [], begin = performance.now();
  for (let i = 0; i < looks; i++) await ask("look", { seed: 0, moves: [] });
  const message_ms = (performance.now() - begin) / looks, times = [], rates = [];
  for (let i = 0; i < moves; i++) {
    begin = performance.now();
    const found = await ask("think", { seed: 0, moves: line, simulations });
    times.push((performance.now() - begin) / 1000);
    line = [...line, found.action];
    if ((await ask("look", { seed: 0, moves: line })).mover < 0) break;
  }
  const first = (await ask("look", { seed: 0, moves: [] })).legal;
  for (const { action } of first.slice(0, moves)) {   // No tree is kept from one first move to another
    const found = await ask("think", { seed: 0, moves: [action], simulations: long });
    rates.push(found.evaluations / found.seconds);
  }
  return { message_ms, evaluations_per_s: middle(rates), move_s: middle(times) };
}"""


def measure(browser, folder, name) -> dict:
    "Return the sizes and the times of one page."
    file = export_page(f"pretrained:{name}", folder/f"{name}.html", simulations=SIMULATIONS)
    data = json.loads(file.read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0])
    page = browser.new_context(offline=True).new_page()
    page.goto(file.as_uri())
    page.locator("#status", has_text="move").wait_for(timeout=60_000)
    times = page.evaluate(MEASURE, [LOOKS, MOVES, SIMULATIONS, LONG])
    return dict(game=name, bytes=file.stat().st_size, weights=len(data["network"]["weights"]), module=len(data["module"]), **times)


def machine() -> str:
    try: lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError: return platform.processor()
    return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))


def main():
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        rows = [measure(browser, Path(folder), name) for name in GAMES]
        print(json.dumps(dict(machine=machine(), browser=f"Chromium {browser.version}", simulations=SIMULATIONS, long=LONG, pages=rows), indent=1))
        browser.close()


if __name__ == "__main__": main()
