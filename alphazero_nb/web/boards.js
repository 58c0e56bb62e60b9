// Positions as data: the twin of `Board` in alphazero_nb/ui/board.py.

const square = (action = -1, seat = -1, more = {}) => ({ action, seat, aim: true, sign: "", alert: false, ...more });
const board = (look, heights, widths, squares, more = {}) =>
  ({ look, heights, widths, squares, rows: [], columns: [], steps: [], turns: false, run: 0, ...more });
const repeat = (value, count) => Array(count).fill(value);

function stoneBoard(
  owners,
  height,
  width,
  look,
  more = {},
  squares = owners.map((seat, place) => square(place, seat)),
) {
  const side = Math.min(84, Math.max(26, Math.floor(360 / Math.max(height, width))));
  const even = 2 * Math.floor(side / 2);   // Half a hexagon is a whole number
  if (look === "hexes") return board(look, repeat(Math.round(0.866 * even), height), repeat(even, width), squares, more);
  return board(look, repeat(side, height), repeat(side, width), squares, more);
}

// The twin of `GridDrawing` in alphazero_nb/ui/grid.py.
function gridBoard(state, drawing, legal) {
  const { height, width, at, seats, signs, actions, falls, moves } = drawing, stride = drawing.stride || width;
  const numbers = repeat(0, height * width).map((_, place) => state[at + Math.floor(place / width) * stride + (place % width)]);
  const found = numbers.map((number) => (seats ? seats[number] ?? -1 : Math.max(number, 0) - 1));
  const lowest = (column) => found.filter((seat, place) => place % width === column && seat < 0).length - 1;
  const click = (place) => (moves ? -1 : falls ? place % width : actions ? actions[place] : place);
  const squares = numbers.map((number, place) =>
    square(click(place), found[place], {
      aim: !falls || Math.floor(place / width) === lowest(place % width),
      sign: signs[number] ?? "",
    }));
  const steps = (moves ? legal.filter((action) => moves[action]) : [])
    .map((action) => ({ action, start: moves[action][0], to: moves[action][1], word: "" }));
  const { look, rows, columns, run } = drawing;
  return stoneBoard(found, height, width, look, { rows, columns, run, steps }, squares);
}

function tileBoard(state) {
  const squares = Array.from(state.subarray(0, 16), (tile) =>
    square(-1, tile - 1, { sign: tile ? String(2 ** tile) : "" }),
  );
  return board("tiles", repeat(84, 4), repeat(84, 4), squares);
}

function dotsBoard(state, { height, width, cells }) {
  const rows = (height - 1) / 2, columns = (width - 1) / 2, first = state.length - rows * columns;
  const wide = Math.min(72, Math.max(26, Math.floor(360 / Math.max(rows, columns)) - 22));
  const squares = repeat(0, height * width).map(() => square());
  cells.forEach((place, action) => {
    squares[place] = square(action, -1, { sign: state[first - cells.length + action] ? "line" : "" });
  });
  for (let box = 0; box < rows * columns; box++)
    squares[(2 * Math.floor(box / columns) + 1) * width + 2 * (box % columns) + 1] = square(-1, state[first + box] - 1);
  const track = (count) => repeat(0, count).map((_, i) => (i % 2 ? wide : 22));
  return board("edges", track(height), track(width), squares);
}

// Chess: a row has sets of squares as the mover sees them, each in four numbers of 16 bits.
const has = (state, at, bit) => (state[at + (bit >> 4)] >> (bit & 15)) & 1;

function chessPieces(state, { size, mover, at }) {   // Letters by place in reading order, as White sees them
  const pieces = repeat("", size * size);
  for (let rank = 0; rank < size; rank++)
    for (let file = 0; file < size; file++) {
      const [pawn, knight, diagonal, straight, king, own] = [0, 1, 2, 3, 4, 5].map((set) =>
        has(state, at + 4 * set, 8 * rank + file),
      );
      const letter = pawn
        ? "P"
        : knight
          ? "N"
          : diagonal && straight
            ? "Q"
            : diagonal
              ? "B"
              : straight
                ? "R"
                : king
                  ? "K"
                  : "";
      const row = state[mover] === 0 ? size - 1 - rank : rank;
      if (letter) pieces[row * size + file] = Boolean(own) === (state[mover] === 0) ? letter : letter.toLowerCase();
    }
  return pieces;
}

const DIAGONALS = [[1, 1], [1, -1], [-1, 1], [-1, -1]], STRAIGHTS = [[0, 1], [1, 0], [0, -1], [-1, 0]];
const HOPS = [[1, 2], [2, 1], [-1, 2], [-2, 1], [1, -2], [2, -1], [-1, -2], [-2, -1]];

function inCheck(pieces, size, white) {
  const king = pieces.indexOf(white ? "K" : "k"),
    y = Math.floor(king / size),
    x = king % size;
  const at = (row, column) =>
    row < 0 || row >= size || column < 0 || column >= size ? "#" : pieces[row * size + column];
  const enemy = (letter, kinds) =>
    letter && kinds.includes(letter.toUpperCase()) && (letter === letter.toUpperCase()) !== white;
  const ray = ([down, right]) => {
    for (let far = 1; ; far++) { const letter = at(y + far * down, x + far * right); if (letter) return letter; }
  };
  return HOPS.some(([down, right]) => enemy(at(y + down, x + right), "N"))
    || [-1, 1].some((right) => enemy(at(y + (white ? -1 : 1), x + right), "P"))
    || DIAGONALS.some((way) => enemy(ray(way), "BQ")) || STRAIGHTS.some((way) => enemy(ray(way), "RQ"));
}

function chessMove(state, action, { size, leads, mover, at }) {   // Its name as in UCI
  const ways = leads.length + 9, cell = Math.floor(action / ways), way = action % ways, under = way - leads.length;
  const start = 8 * Math.floor(cell / size) + (cell % size), to = start + (under < 0 ? leads[way] : 7 + (under % 3));
  const name = (place) => {
    const rank = place >> 3;
    return "abcdefgh"[place & 7] + (state[mover] === 1 ? size - rank : rank + 1);
  };
  const queen = under < 0 && has(state, at, start) && to >> 3 === size - 1;
  return name(start) + name(to) + (under < 0 ? (queen ? "q" : "") : "nbr"[Math.floor(under / 3)]);
}

function chessBoard(state, drawing, legal) {
  const { size, mover } = drawing, pieces = chessPieces(state, drawing), white = state[mover] === 0;
  const checked = inCheck(pieces, size, white) ? (white ? "K" : "k") : null;
  const squares = pieces.map((letter) =>
    square(-1, letter ? Number(letter !== letter.toUpperCase()) : -1, {
      sign: letter.toUpperCase(),
      alert: letter !== "" && letter === checked,
    }),
  );
  const place = (name) => size * (size - Number(name[1])) + "abcdefgh".indexOf(name[0]);
  const rank = (name) => "qrbn".indexOf(name.slice(4)), words = { q: "queen", r: "rook", b: "bishop", n: "knight" };
  const named = legal.map((action) => ({ action, name: chessMove(state, action, drawing) }));
  named.sort((a, b) => rank(a.name) - rank(b.name));
  const steps = named.map(({ action, name }) =>
    ({ action, start: place(name.slice(0, 2)), to: place(name.slice(2, 4)), word: words[name[4]] || "" }));
  const sides = repeat(Math.floor(400 / size), size);
  return board("chess", sides, sides, squares, {
    rows: sides.map((_, row) => size - row),
    columns: [..."abcdefgh".slice(0, size)],
    steps,
    turns: true,
  });
}

// Any other game whose first planes are the pieces of each player, the mover's first.
function planeOwners(game, drawing, state, seat) {
  game.state.set(state);
  const inputs = game.inputs(), cells = drawing.height * drawing.width, players = game.size.players;
  return repeat(-1, cells).map((_, cell) => {
    for (let k = 0; k < players; k++) if (inputs[k * cells + cell]) return (seat + k) % players;
    return -1;
  });
}

function afterMove(game, drawing, before, mover, state) {
  game.state.set(state);
  const players = game.size.players, next = game.mover;
  const seats = next >= 0 ? [next] : repeat(0, players).map((_, k) => (mover + 1 + k) % players);
  let found;
  for (const seat of seats) {
    found = planeOwners(game, drawing, state, seat);
    const placed = before.flatMap((owner, place) => (owner < 0 && found[place] === mover ? [place] : []));
    if (placed.length === 1) return [found, placed[0]];
  }
  return [found, -1];
}

function planeBoard(game, drawing, states, legal) {
  const state = states[states.length - 1], { height, width } = drawing, clicks = repeat(-1, height * width);
  const moverOf = (row) => { game.state.set(row); return game.mover; };
  const mover = moverOf(state);
  let found;
  if (mover >= 0 || states.length < 2) found = planeOwners(game, drawing, state, Math.max(0, mover));
  else {
    const before = states[states.length - 2], last = moverOf(before);
    [found] = afterMove(game, drawing, planeOwners(game, drawing, before, last), last, state);
  }
  for (const action of legal) {
    game.state.set(state);
    game.play(action);
    const place = afterMove(game, drawing, found, mover, game.state.slice())[1];
    if (place >= 0) clicks[place] = action;
  }
  return stoneBoard(found, height, width, "cells", {}, found.map((seat, place) => square(clicks[place], seat)));
}

function cellBoard(game, drawing, states, legal) {   // The same, if `cells` says where each move belongs
  const state = states[states.length - 1], { height, width, cells } = drawing, clicks = repeat(-1, height * width);
  game.state.set(state);
  const mover = game.mover;
  let seat = Math.max(0, mover);
  if (mover < 0 && states.length > 1) {
    // The planes do not say whose they are; old pieces stay
    const before = cellBoard(game, drawing, states.slice(0, -1), []).squares,
      seats = repeat(0, game.size.players).map((_, k) => k);
    const stays = (found) => before.every((square, place) => square.seat < 0 || square.seat === found[place]);
    seat = Math.max(0, seats.findIndex((each) => stays(planeOwners(game, drawing, state, each))));
  }
  const found = planeOwners(game, drawing, state, seat);
  for (const action of legal) if (cells[action] < clicks.length) clicks[cells[action]] = action;   // Else it gets a button
  return stoneBoard(found, height, width, "cells", {}, found.map((owner, place) => square(clicks[place], owner)));
}

function drawBoard(game, drawing, states, legal) {   // A board, or null for a game that has none
  const state = states[states.length - 1];
  switch (drawing.kind) {
    case "grid": return gridBoard(state, drawing, legal);
    case "tiles": return tileBoard(state);
    case "dots": return dotsBoard(state, drawing);
    case "chess": return chessBoard(state, drawing, legal);
    case "planes": return planeBoard(game, drawing, states, legal);
    case "cells": return cellBoard(game, drawing, states, legal);
    default: return null;
  }
}

// Backgammon: who is to move, the seat, the dice left, how often the first may be used, and from 8 on 26 places for each seat
// as it counts them itself, from those off to the bar.
const checkersOf = (state, seat, place) => state[8 + 26 * seat + place];

function backgammonStep(state, action) {   // 13/8, bar/20, 6/off, with a star for a hit
  if (action === 50) return "pass";
  const origin = (action >> 1) + 1, seat = state[1], die = state[2 + (action % 2)], low = state[3], target = origin - die;
  const word = (place) => (place === 25 ? "bar" : place <= 0 ? "off" : String(place));
  const hit = target > 0 && checkersOf(state, 1 - seat, 25 - target) === 1;
  let last = 25;
  while (last > 0 && checkersOf(state, seat, last) === 0) last--;
  const both = target <= 0 && low > 0 && origin <= low && origin === last;
  return `${word(origin)}/${word(target)}${hit ? "*" : ""}${both ? `(${die})` : ""}`;
}

function backgammonLines(state) {   // The board as text: x is seat 0, who moves from 24 down to 1
  const sign = (point, level) => {
    const mine = checkersOf(state, 0, point), theirs = checkersOf(state, 1, 25 - point), count = mine || theirs;
    if (level === 4 && count > 5) return count;
    return count > level ? (mine ? "x" : "o") : level === 0 ? "·" : " ";
  };
  const line = (points, middle, cell) => {
    const words = points.map((point) => String(cell(point)).padStart(3));
    return [...words.slice(0, 6), middle, ...words.slice(6)].join("");
  };
  const top = Array.from({ length: 12 }, (_, k) => 13 + k), bottom = top.map((_, k) => 12 - k);
  const half = (points) => [0, 1, 2, 3, 4].map((level) => line(points, "  |", (point) => sign(point, level)));
  const names = (points) => line(points, "   ", (point) => point);
  const both = (place) => `x ${checkersOf(state, 0, place)}, o ${checkersOf(state, 1, place)}`;
  const dice = [...Array(state[4]).fill(state[2]), ...(state[3] > 0 ? [state[3]] : [])];
  const won = [..."xo"].find((_, seat) => checkersOf(state, seat, 0) === 15), mover = "xo"[state[1]];
  const turn = won ? `${won} has won` : state[0] === -1 ? "a draw, as the game is too long"
    : dice.length ? `${mover} has ${dice.join(" ")}` : `${mover} rolls`;
  return [names(top), ...half(top), "", ...half(bottom).reverse(), names(bottom), `bar: ${both(25)}; off: ${both(0)}; ${turn}`];
}

function caption(state, drawing) {   // Lines below the board
  if (drawing.kind === "backgammon") return backgammonLines(state);
  if (drawing.kind === "tiles") return [`Score: ${1000 * state[18] + state[17]}`];
  if (drawing.kind === "pig")
    return [
      `First player: ${state[1]} points`,
      `Second player: ${state[2]} points`,
      `This turn: ${state[3]} points of ${state[6]} to win`,
    ];
  return [];
}

function winningLines({ heights, widths, squares, run }) {   // The places of each straight line that is long enough to win
  const height = heights.length, width = widths.length, lines = [];
  const seat = (row, column) =>
    row >= 0 && row < height && column >= 0 && column < width ? squares[row * width + column].seat : -1;
  if (run)
    for (let row = 0; row < height; row++)
      for (let column = 0; column < width; column++)
        for (const [down, right] of [[0, 1], [1, 0], [1, 1], [1, -1]]) {
          const owner = seat(row, column), line = [];
          if (owner < 0 || seat(row - down, column - right) === owner) continue;
          for (let k = 0; seat(row + k * down, column + k * right) === owner; k++)
            line.push((row + k * down) * width + column + k * right);
          if (line.length >= run) lines.push(line);
        }
  return lines;
}

function lastPlaces(before, after, action) {   // The target of the action, or all changed places
  const step = before.steps.find((each) => each.action === action);
  if (step) return [step.start, step.to];
  const changed = before.squares.flatMap((was, place) =>
    (was.seat !== after.squares[place].seat || was.sign !== after.squares[place].sign ? [place] : []));
  const own = changed.filter((place) => before.squares[place].action === action);
  return own.length ? own : changed;
}
