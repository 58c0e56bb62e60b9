// Draws positions in Node with boards.js, for tests/unit/test_web.py.
//   node boards_node.js BOARDS [DRIVER MODULE]     the job is JSON on standard input; the boards are JSON on standard output
// The module is needed only for drawings that ask the rules.
const fs = require("fs");
const [file, driver, module_] = process.argv.slice(2);
const text = [driver, file].filter(Boolean).map((name) => fs.readFileSync(name, "utf8")).join("\n");
const part = new Function(`${text}; return { drawBoard, lastPlaces, winningLines, caption, chessMove, backgammonStep${driver ? ", Compiled" : ""} };`)();

function draw(game, drawing, { states, legal, before, action }) {
  const rows = states.map((state) => Int16Array.from(state)), state = rows[rows.length - 1];
  const board = part.drawBoard(game, drawing, rows, legal), names = drawing.kind === "chess" ? legal.map((each) => part.chessMove(state, each, drawing))
    : drawing.kind === "backgammon" ? legal.map((each) => part.backgammonStep(state, each)) : [];
  const last = before ? part.lastPlaces(part.drawBoard(game, drawing, rows.slice(0, -1), before), board, action) : [];
  return { board, names, last: last.sort((a, b) => a - b), caption: part.caption(state, drawing), won: board ? part.winningLines(board) : [] };
}

async function main() {
  const game = module_ ? await part.Compiled.load(fs.readFileSync(module_)) : null;
  if (game) game.reserve(1, 1);
  const { drawing, positions } = JSON.parse(fs.readFileSync(0, "utf8"));
  process.stdout.write(JSON.stringify(positions.map((position) => draw(game, drawing, position))));
}

main();
