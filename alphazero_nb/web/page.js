"use strict";
// The page: it draws what the worker says, and sends it moves. Everything that a person wrote enters as text.

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const BLUE = "#0072B2", ORANGE = "#D55E00", GREEN = "#009E73", INK = "#3A3F45", PANEL = "#E6EAF0", EMPTY = "#FBFCFD";
const SEATS = [BLUE, "#E69F00", "#CC79A7", "#56B4E9", ORANGE, "#6B6B6B"];
const TILES = ["#EEE4DA", "#EDE0C8", "#F2B179", "#F59563", "#F67C5F", "#F65E3B", "#EDCF72", "#EDC850", "#D9B13B",
               GREEN, BLUE];
const STYLES = { cells: [PANEL, 0.36], hexes: [PANEL, 0.38], crosses: [PANEL, 0.27], lines: ["#EFE3CB", 0.45], holes: ["#C9D3E2", 0.4],
                 edges: [PANEL, 0.3], tiles: ["#BBADA0", 0.44], chess: [PANEL, 0.45] };
const MEN = { P: "pawn", N: "knight", B: "bishop", R: "rook", Q: "queen", K: "king" };
const at = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value); else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key.replaceAll("_", "-"), value);
  made.append(...children);
  return made;
}

// Shapes of the board, as in alphazero_nb/ui/board.py ---------------------------------------------

const rect = (x, y, width, height, style) => shape("rect", { x, y, width, height, ...style });
const circle = (cx, cy, r, style) => shape("circle", { cx, cy, r, ...style });
const polygon = (points, style) => shape("polygon", { points: points.map((point) => point.join(",")).join(" "), ...style });
const stroke = (x1, y1, x2, y2, color, width, opacity = 1) =>
  shape("line", { x1, y1, x2, y2, stroke: color, stroke_width: width, stroke_opacity: opacity,
                  stroke_linecap: "round" });
const words = (x, y, text, size, color, weight = "normal") =>
  shape(
    "text",
    { x, y: y + 0.36 * size, font_size: size, fill: color, font_weight: weight, text_anchor: "middle" },
    String(text),
  );

function seatColor(look, seat) {
  if (look === "lines" && seat < 2) return ["#26282B", "#FFFFFF"][seat];
  if (look === "tiles") return TILES[Math.min(seat, TILES.length - 1)];
  if (look === "chess") return ["#FFFFFF", "#2B2E33"][seat % 2];
  return SEATS[seat % SEATS.length];
}

function chessman(letter, x, y, size, fill, line) {
  const [body, lines] = data.men[letter];
  const made = shape(
    "g",
    {
      transform: `translate(${x} ${y}) scale(${size / 2})`,
      stroke: line,
      stroke_linejoin: "round",
      stroke_linecap: "round",
    },
    shape("path", { d: body, fill, stroke_width: 0.18, paint_order: "stroke" }),
    shape("path", { d: lines, fill: "none", stroke_width: 0.07 }),
  );
  if (letter === "N") made.append(circle(-0.38, -0.4, 0.08, { fill: line, stroke: "none" }));
  return made;
}

function piece(look, seat, x, y, side, sign) {
  const color = seatColor(look, seat), r = STYLES[look][1] * side;
  if (look === "chess") return [chessman(sign || "P", x, y, 2 * r, color, ["#1F2226", "#D5DAE0"][seat % 2])];
  if (look === "tiles")
    return [
      rect(x - r, y - r, 2 * r, 2 * r, { rx: 6, fill: color }),
      words(x, y, sign, 0.3 * side, TILES.indexOf(color) < 9 ? INK : "#FFFFFF", "bold"),
    ];
  if (look === "crosses" && seat === 0)
    return [1, -1].map((up) =>
      stroke(x - 0.85 * r, y - up * 0.85 * r, x + 0.85 * r, y + up * 0.85 * r, color, side / 9),
    );
  if (look === "crosses" && seat === 1)
    return [circle(x, y, r, { fill: "none", stroke: color, stroke_width: side / 9 })];
  const letters = sign ? [words(x, y, sign, 0.9 * r, color === "#FFFFFF" ? INK : "#FFFFFF", "bold")] : [];
  if (look === "lines" && seat < 2)
    return [circle(x, y, r, { fill: color, stroke: "#77797C", stroke_width: 1 }), ...letters];
  const ring = { fill: "none", stroke: "#FFFFFF", stroke_width: Math.max(1.5, r / 9), stroke_opacity: 0.85 };
  return [circle(x, y, r, { fill: color }), ...(seat % 2 ? [circle(x, y, 0.66 * r, ring)] : []), ...letters];
}

function hexLayout({ widths, heights }) {   // Each row lies half a hexagon further right
  const side = widths[0], high = heights[0], tip = Math.round(0.15 * side), margin = 24;
  const places = heights.flatMap((_, row) => widths.map((_, column) =>
    [margin + side * (column + row / 2 + 0.5), margin + tip + high * (row + 0.5), side, high]));
  const width = 2 * margin + side * (widths.length + (heights.length - 1) / 2);
  return { places, margin, width, height: 2 * (margin + tip) + high * heights.length };
}

function layout(board) {   // Centre and size of each square
  if (board.look === "hexes") return hexLayout(board);
  const margin = board.rows.length || board.columns.length ? 24 : 10, places = [];
  let y = margin;
  for (const height of board.heights) {
    let x = margin;
    for (const width of board.widths) { places.push([x + width / 2, y + height / 2, width, height]); x += width; }
    y += height;
  }
  const sum = (sizes) => sizes.reduce((a, b) => a + b, 2 * margin);
  return { places, margin, width: sum(board.widths), height: sum(board.heights) };
}

function hexes(board, places) {   // Empty hexagons, the sides that each player connects, and the labels
  const columns = board.widths.length, rows = board.heights.length, last = (rows - 1) * columns;
  const corner = ([place, k]) => {   // From the top, clockwise
    const [x, y, w] = places[place], far = w / Math.sqrt(3), angle = (Math.PI * k) / 3;
    return [x + far * Math.sin(angle), y - far * Math.cos(angle)];
  };
  const body = places.map((_, place) => polygon([0, 1, 2, 3, 4, 5].map((k) => corner([place, k])),
    { fill: EMPTY, stroke: "#B4BECB", stroke_width: 1 }));
  const along = (count, place, ks) => Array.from({ length: count }, (_, i) => ks.map((k) => [place(i), k])).flat();
  const ends = [
    [0, [...along(columns, (i) => i, [5, 0]), [columns - 1, 1]]],
    [0, [...along(columns, (i) => last + i, [4, 3]), [last + columns - 1, 2]]],
    [1, along(rows, (i) => i * columns, [5, 4])],
    [1, along(rows, (i) => i * columns + columns - 1, [1, 2])],
  ];
  for (const [seat, line] of ends) {
    const points = line.map(corner);
    points.slice(1).forEach((b, i) => body.push(stroke(...points[i], ...b, seatColor("hexes", seat), 4)));
  }
  const ink = "#434B55", [, y, w] = places[0];
  body.push(...board.rows.map((name, row) => words(places[row * columns][0] - w / 2 - 12, places[row * columns][1], name, 12, ink)));
  body.push(...board.columns.map((name, column) => words(places[column][0], y - w / Math.sqrt(3) - 11, name, 12, ink)));
  return body;
}

function background(board, { places, margin, width, height }) {
  const body = [rect(0, 0, width, height, { rx: 10, fill: STYLES[board.look][0] })], columns = board.widths.length;
  if (board.look === "hexes") return [...body, ...hexes(board, places)];
  if (board.look === "holes") body.push(...places.map(([x, y, w]) => circle(x, y, 0.42 * w, { fill: EMPTY })));
  if (board.look === "cells" || board.look === "crosses" || board.look === "tiles")
    body.push(
      ...places.map(([x, y, w, h]) =>
        rect(x - w / 2 + 1.5, y - h / 2 + 1.5, w - 3, h - 3, {
          rx: 5,
          fill: board.look === "tiles" ? "#CDC1B4" : EMPTY,
        }),
      ),
    );
  if (board.look === "lines") {
    const ends = board.heights.map((_, row) => [places[row * columns], places[row * columns + columns - 1]]);
    ends.push(...board.widths.map((_, column) => [places[column], places[places.length - columns + column]]));
    body.push(...ends.map(([a, b]) => stroke(a[0], a[1], b[0], b[1], "#8F7F5F", 1)));
  }
  if (board.look === "chess")
    body.push(
      ...places.map(([x, y, w, h], place) =>
        rect(x - w / 2, y - h / 2, w, h, {
          fill:
            (Math.floor(place / columns) + board.heights.length - 1 + (place % columns)) % 2 ? "#F1EEE6" : "#A3B8CF",
        }),
      ),
    );
  body.push(...board.rows.map((name, row) => words(margin / 2, places[row * columns][1], name, 12, "#434B55")));
  body.push(...board.columns.map((name, column) => words(places[column][0], height - margin / 2, name, 12, "#434B55")));
  return body;
}

function marked(board, marks, place, [x, y, side]) {
  const share = marks.shares.get(place) || 0, { seat } = board.squares[place], body = [];
  if (share >= 0.005 && seat < 0) {
    const r = Math.max(3, 0.46 * side * Math.sqrt(share));
    if (share >= 0.05 && board.look === "lines")
      body.push(circle(x, y, Math.max(r, 0.28 * side), { fill: STYLES.lines[0] }));
    body.push(circle(x, y, r, { fill: GREEN, fill_opacity: 0.3 }));
    if (share >= 0.05) body.push(words(x, y, Math.round(100 * share), Math.max(9, Math.min(15, 0.3 * side)), INK));
  }
  if (marks.legal.has(place) && seat >= 0)
    body.push(
      circle(x, y, 0.45 * side, { fill: "none", stroke: INK, stroke_width: 0.06 * side, stroke_opacity: 0.45 }),
    );
  else if (marks.legal.has(place) && share < 0.05)
    body.push(circle(x, y, Math.max(2, (board.steps.length ? 0.12 : 0.06) * side), { fill: INK, fill_opacity: 0.4 }));
  if (marks.last.has(place) && board.look !== "chess" && board.look !== "tiles") {
    if (seat >= 0 && board.look !== "crosses")
      body.push(circle(x, y, 0.1 * side, { fill: seatColor(board.look, seat) === "#FFFFFF" ? ORANGE : "#FFFFFF" }));
    else
      body.push(
        rect(x - side / 2 + 2.5, y - side / 2 + 2.5, side - 5, side - 5, {
          rx: 5,
          fill: "none",
          stroke: INK,
          stroke_width: 2,
          stroke_opacity: 0.45,
        }),
      );
  }
  if (place === marks.best)
    body.push(circle(x, y, 0.44 * side, { fill: "none", stroke: GREEN, stroke_width: 2.5, stroke_dasharray: "5 4" }));
  return body;
}

function edge(board, marks, place, [x, y, w, h]) {
  // A dot, a line or a box of dots and boxes
  const columns = board.widths.length,
    row = Math.floor(place / columns),
    column = place % columns,
    { seat, sign } = board.squares[place];
  if (row % 2 === 0 && column % 2 === 0) return [];
  if (row % 2 && column % 2) {
    if (seat < 0) return [];
    const tint = rect(x - w / 2 - 9, y - h / 2 - 9, w + 18, h + 18, {
      fill: seatColor(board.look, seat),
      fill_opacity: 0.18,
    });
    return [tint, ...piece(board.look, seat, x, y, 0.8 * Math.min(w, h), "")];
  }
  const dx = column % 2 ? w / 2 + 7 : 0,
    dy = column % 2 ? 0 : h / 2 + 7,
    share = marks.shares.get(place) || 0,
    last = marks.last.has(place);
  const line = (color, width, opacity) => stroke(x - dx, y - dy, x + dx, y + dy, color, width, opacity);
  if (sign) return [line(last ? ORANGE : INK, last ? 6 : 4.5)];
  const body = marks.legal.has(place) && share < 0.005 ? [line(INK, 2, 0.13)] : [];
  if (share >= 0.005) body.push(line(GREEN, 3 + 9 * Math.sqrt(share), 0.4));
  if (place === marks.best) body.push(line(GREEN, 4));
  if (share >= 0.05) body.push(circle(x, y, 10, { fill: PANEL }), words(x, y, Math.round(100 * share), 11, INK));
  return body;
}

function behind(board, marks, place, [x, y, side]) {
  const corner = [x - side / 2, y - side / 2, side, side],
    frame = [x - side / 2 + 1.5, y - side / 2 + 1.5, side - 3, side - 3],
    body = [];
  if (marks.last.has(place) && board.look === "chess")
    body.push(rect(...corner, { fill: "#F2C94C", fill_opacity: 0.6 }));
  if (board.squares[place].alert)
    body.push(
      rect(...corner, { fill: "#C8202F", fill_opacity: 0.35 }),
      rect(...frame, { fill: "none", stroke: "#C8202F", stroke_width: 3 }),
    );
  if (place === marks.chosen)
    body.push(
      rect(...corner, { fill: GREEN, fill_opacity: 0.25 }),
      rect(...frame, { fill: "none", stroke: GREEN, stroke_width: 3 }),
    );
  return body;
}

function arrows(board, marks, { places }) {
  const side = Math.min(...board.widths), body = [];
  for (const [, { start, to, share }] of marks.arrows) {
    if (share < 0.02) continue;
    const [x, y] = places[start],
      [toX, toY] = places[to],
      far = Math.hypot(toX - x, toY - y) || 1,
      width = side * (0.06 + 0.3 * share);
    const u = (toX - x) / far,
      v = (toY - y) / far,
      head = width / 2 + 0.12 * side,
      neck = far - head - 0.12 * side,
      end = far - 0.05 * side;
    const corner = (along, across) => `${x + along * u - across * v},${y + along * v + across * u}`;
    const corners = [
      [0.1 * side, -width / 2],
      [neck, -width / 2],
      [neck, -head],
      [end, 0],
      [neck, head],
      [neck, width / 2],
      [0.1 * side, width / 2],
    ];
    body.push(
      shape("polygon", { points: corners.map((each) => corner(...each)).join(" "), fill: GREEN, fill_opacity: 0.55 }),
    );
    if (share >= 0.05)
      body.push(
        circle((x + toX) / 2, (y + toY) / 2, 9.5, { fill: "#FFFFFF", fill_opacity: 0.85 }),
        words((x + toX) / 2, (y + toY) / 2, Math.round(100 * share), 11, INK),
      );
  }
  return body;
}

function wonLine(spots) {   // A bar through the squares of a line that has won, and a ring around each of its pieces
  const [x, y, side] = spots[0], [toX, toY] = spots[spots.length - 1];
  const ring = (color, wide) => spots.map(([cx, cy]) =>
    circle(cx, cy, 0.44 * side, { fill: "none", stroke: color, stroke_width: wide * side }));
  return [stroke(x, y, toX, toY, "#FFFFFF", 0.16 * side, 0.9), stroke(x, y, toX, toY, INK, 0.08 * side, 0.9),
          ...ring("#FFFFFF", 0.13), ...ring(INK, 0.06)];
}

function picture(board, marks) {
  const plan = layout(board), body = background(board, plan), columns = board.widths.length;
  plan.places.forEach((spot, place) => {
    const { seat, sign } = board.squares[place];
    if (board.look === "edges") body.push(...edge(board, marks, place, spot));
    else
      body.push(
        ...behind(board, marks, place, spot),
        ...(seat >= 0 ? piece(board.look, seat, spot[0], spot[1], spot[2], sign) : []),
        ...marked(board, marks, place, spot),
      );
  });
  if (board.look === "edges")
    plan.places.forEach(([x, y], place) => {
      if (Math.floor(place / columns) % 2 === 0 && (place % columns) % 2 === 0)
        body.push(circle(x, y, 5.5, { fill: INK }));
    });
  for (const line of marks.won) body.push(...wonLine(line.map((place) => plan.places[place])));
  const made = shape(
    "svg",
    { viewBox: `0 0 ${plan.width} ${plan.height}`, "aria-hidden": "true" },
    ...body,
    ...arrows(board, marks, plan),
  );
  return { made, plan };
}

function turned(board) {
  const last = board.squares.length - 1,
    back = (list) => [...list].reverse();
  return {
    ...board,
    heights: back(board.heights),
    widths: back(board.widths),
    squares: back(board.squares),
    rows: back(board.rows),
    columns: back(board.columns),
    steps: board.steps.map((step) => ({ ...step, start: last - step.start, to: last - step.to })),
  };
}

// The worker --------------------------------------------------------------------------------------

let worker = null, pending = new Map(), asked = 0, watchdog = 0;

function startWorker() {
  const code = new Blob([at("worker").textContent], { type: "text/javascript" }), url = URL.createObjectURL(code);
  worker = new Worker(url);
  worker.onmessage = ({ data: message }) => {
    watch();
    if (message.progress) { showSearch(message.progress); return; }
    const wait = pending.get(message.id);
    pending.delete(message.id);
    watch();
    if (wait) {
      if (message.error === undefined) wait.resolve(message.result);
      else wait.reject(new Error(message.error));
    }
  };
  worker.onerror = (event) => { event.preventDefault(); endWorker(event.message || "the worker stopped"); };
  return ask("open", data);
}

function endWorker(reason) {
  worker.terminate();
  worker = null;
  const waiting = [...pending.values()];
  pending.clear();
  watch();
  for (const { reject } of waiting) reject(new Error(reason));
}

function watch() {   // A rule that never returns ends the worker
  clearTimeout(watchdog);
  if (!pending.size) return;
  const late = performance.now() + 1000 * data.patience + 1000;
  const end = () => performance.now() > late ? watch()   // The browser slept, or holds a hidden page back
    : endWorker(`the rules did not answer within ${data.patience} seconds`);
  watchdog = setTimeout(end, 1000 * data.patience);
}

function ask(kind, more = {}) {
  if (!worker) return startWorker().then(() => ask(kind, more));
  return new Promise((resolve, reject) => {
    pending.set(++asked, { resolve, reject });
    watch();
    worker.postMessage({ id: asked, kind, ...more });
  });
}

// The game ----------------------------------------------------------------------------------------

let seed = 0,
  position = null,
  viewed = null,
  thinking = false,
  failed = "",
  chosen = -1,
  offered = [],
  hint = null,
  cursor = 0,
  turn = 0,
  opening = null,   // What the worker has been asked to show, and the seed of another game if it is one
  held = null;      // Where the keyboard was when a redraw took its button away
let results = new Map(); // Number of moves: expected results by seat
const humans = () =>
  ({ all: data.seats.map((_, seat) => seat), none: [] })[at("seat").value] || [Number(at("seat").value)];
const over = () => position.mover === -1;
const latest = () => opening?.moves || position?.moves || [];
const yours = () => !failed && !opening && !over() && !viewed && humans().includes(position.mover);
const seatName = (seat) => data.seats[seat];
const alone = data.seats.length === 1;   // Then a result counts points, and is no chance
const who = (seat) =>
  humans().length === 1 && humans()[0] === seat
    ? "You"
    : humans().includes(seat)
      ? seatName(seat)
      : humans().length && data.seats.length === 2
        ? "The agent"
        : seatName(seat);

function fail(error) { [failed, opening, thinking] = [error.message, null, false]; if (worker) endWorker(failed); render(); }

async function goTo(moves, drop = true, text = "", other = opening?.other) {   // Show a position, and let the agent play in it
  const mine = ++turn;
  opening = { moves, other };
  if (drop) { if (worker) worker.postMessage({ kind: "cancel" }); thinking = false; }
  [chosen, offered, hint, viewed, failed] = [-1, [], null, null, ""];
  try {
    const next = await ask("show", { seed: other ? other.seed : seed, moves });
    if (mine !== turn) return;
    if (other) {
      [seed, results] = [other.seed, new Map()];
      matchLevel();
      counted = other.counted;
    }
    [position, opening] = [next, null];
    for (const key of results.keys()) if (key > moves.length) results.delete(key);
    showExpected();
    writeLink();
    countGame();
    render(text);
    if (!over() && !humans().includes(position.mover)) await agentMoves(mine);
  } catch (error) { if (mine === turn) fail(error); }
}

async function search(mine, { simulations, temperature }) {
  thinking = true;
  render(at("said").textContent);
  try { return await ask("think", { seed, moves: position.moves, simulations, temperature }); }
  finally { if (mine === turn) thinking = false; }
}

async function agentMoves(mine) {
  const reply = ({ action, name }) => goTo([...position.moves, action], false, `${who(position.mover)} played ${name}.`);
  if (position.legal.length === 1) { await reply(position.legal[0]); return; }
  const found = await search(mine, strength());
  if (mine !== turn) return;
  showSearch(found);
  results.set(position.moves.length, found.means);
  await reply(position.legal.find(({ action }) => action === found.action));
}

async function showHint() {
  if (!yours() || thinking) return;
  const mine = ++turn;
  counted = true;
  try {
    const found = await search(mine, strength().temperature > 0 ? data.levels[data.levels.length - 1] : strength());
    if (mine !== turn) return;
    results.set(position.moves.length, found.means);
    hint = found;
    showSearch(found);
    const { name } = position.legal.find(({ action }) => action === found.action);
    render(`Hint: ${name}.`);
  } catch (error) { if (mine === turn) fail(error); }
}

function playAction(action) { if (yours() && !thinking) goTo([...position.moves, action]); }

function clickPlace(place) {
  if (!yours() || thinking) return;
  const board = view(), square = board.squares[place];
  if (board.steps.length) {
    const meant = board.steps.filter((step) => step.start === chosen && step.to === place);
    if (meant.length === 1) { playAction(meant[0].action); return; }
    offered = meant;
    if (!meant.length) chosen = place !== chosen && board.steps.some((step) => step.start === place) ? place : -1;
    render(meant.length ? "Choose the piece." : chosen >= 0 ? "Now choose the square." : "");
  } else if (position.legal.some(({ action }) => action === square.action)) playAction(square.action);
}

function undo() {
  if (opening || !position) return;
  const { moves, movers } = position, own = humans().length ? humans() : data.seats.map((_, seat) => seat);
  let at = moves.length - 1;
  while (at >= 0 && !own.includes(movers[at])) at--;
  if (at < 0) return;
  counted = true;   // A move taken back is help
  goTo(moves.slice(0, at));
}

const anySeed = () => Math.floor(Math.random() * 2 ** 31);

function newGame() { goTo([], true, "", { seed: anySeed(), counted: false }); }

function changeSeats() {   // A game that has begun says nothing about the person afterwards
  if (latest().length) counted = true;
  goTo(latest());
}

function swapSides() {
  if (data.seats.length < 2 || humans().length !== 1) return;
  at("seat").value = String((humans()[0] + 1) % data.seats.length);
  changeSeats();
}

// Strength ----------------------------------------------------------------------------------------

const rating = new Rating(data.levels);
let gameLevel = rating.level, counted = false;   // The level for a whole game; true if the game has been counted, or may not be

function strength() {   // The simulations and the temperature that the agent plays with
  const { value } = at("level");
  if (at("match").checked) return levelBetween(data.levels, gameLevel);
  return value.startsWith("level") ? data.levels[Number(value.slice(5)) - 1]
    : { simulations: Number(value), temperature: 0 };
}

function matchLevel() { [gameLevel, counted] = [rating.level, false]; showRating(); }

function countGame() {   // A game that a person has finished against the matching agent, once
  if (!at("match").checked || counted || !over() || humans().length !== 1) return;
  counted = true;
  const own = position.returns[humans()[0]], others = position.returns.filter((_, seat) => seat !== humans()[0]);
  rating.update((Math.sign(own - Math.max(...others)) + 1) / 2, gameLevel);
  showRating();
}

function showRating() {
  const [low, high] = rating.interval.map((level) => level.toFixed(1)), on = at("match").checked;
  at("strength").hidden = on;
  at("rated").textContent = (on ? `The agent plays at level ${gameLevel.toFixed(1)}. ` : "")
    + (rating.games ? `Your level: ${rating.level.toFixed(1)} (${low} to ${high}).` : "");
}

let looks = 0;
async function look(count) {   // An earlier position of this game
  if (thinking || opening) return;
  [chosen, offered] = [-1, []];   // A half-made choice belongs to the position it was made in
  const mine = turn, number = ++looks;
  if (count >= position.moves.length) {
    viewed = null;
    render();
    return;
  }
  try {
    const found = await ask("look", { seed, moves: position.moves.slice(0, count) });
    if (mine !== turn || number !== looks) return;
    viewed = found;
    render();
  } catch (error) { if (mine === turn) fail(error); }
}

// Links -------------------------------------------------------------------------------------------

function linkText() {
  const parts = [...(data.seeded ? [`seed=${seed}`] : []), `moves=${position.moves.join(",")}`];
  return `#${parts.join("&")}`;
}

let written = "";
function writeLink() {
  written = linkText();
  at("link").hidden = true;   // It shows an earlier position
  try {
    history.replaceState(null, "", position.moves.length ? written : "#");
  } catch {
    /* Some browsers refuse this for files */
  }
}

function openLink() {
  let text = location.hash.slice(1);
  try { text = decodeURIComponent(text); } catch { /* As it is */ }
  const fields = new Map(text.split("&").map((part) => part.split("=", 2)));
  const numbers = (fields.get("moves") || "")
    .split(",")
    .filter((part) => part.trim())
    .map((part) => (/^\d{1,6}$/.test(part.trim()) ? Number(part) : -1));   // No move has the number -1, and the page says which
  const given = fields.get("seed") || "";
  return goTo(numbers, true, "", {
    seed: /^\d{1,10}$/.test(given) ? Number(given) % 2 ** 31 : data.seeded ? anySeed() : 0,
    counted: numbers.length > 0,   // A game from a link says nothing about the person
  });
}

async function copyLink() {
  if (!position) return;
  const link = location.href.split("#")[0] + linkText();
  try { await navigator.clipboard.writeText(link); say("The link is copied."); }
  catch { at("link").hidden = false; at("link").value = link; at("link").select(); }
}

// Drawing -----------------------------------------------------------------------------------------

function say(text) { at("said").textContent = text; }

function view() {
  const shown = viewed || position;
  return shown.board && shown.board.turns && humans().length === 1 && humans()[0] === 1
    ? turned(shown.board)
    : shown.board;
}

const flipped = () => view() !== (viewed || position).board;

function marksOf(board) {
  const last = board.squares.length - 1,
    turnPlace = (place) => (flipped() ? last - place : place),
    can = yours() && !thinking;
  const aims = new Map(
    board.squares.flatMap(({ action, aim }, place) => (action >= 0 && aim ? [[action, place]] : [])),
  );
  const legal = new Set(),
    shares = new Map(),
    arrows = new Map();
  if (can && board.steps.length)
    for (const step of board.steps) {
      if (step.start === chosen) legal.add(step.to);
    }
  else if (can) for (const { action } of position.legal) if (aims.has(action)) legal.add(aims.get(action));
  const steps = new Map(board.steps.map((step) => [step.action, step]));
  for (const [action, share] of hint && !viewed ? hint.shares : []) {
    const step = steps.get(action);
    if (step)
      arrows.set(`${step.start} ${step.to}`, {
        ...step,
        share: share + (arrows.get(`${step.start} ${step.to}`)?.share || 0),
      });
    else if (aims.has(action)) shares.set(aims.get(action), share);
  }
  return { legal, shares, arrows, last: new Set((viewed || position).last.map(turnPlace)), chosen,
           won: (viewed || position).won,
           best: hint && !viewed && aims.has(hint.action) ? aims.get(hint.action) : -1 };
}

function placeName(board, place, marks) {
  const columns = board.widths.length,
    row = Math.floor(place / columns),
    column = place % columns,
    { seat, sign, action, alert } = board.squares[place];
  const file = board.columns[column] ?? column + 1,   // Connect Four counts rows from the ground
    rank = board.rows[row] ?? (board.look === "holes" ? board.heights.length - row : row + 1);
  const label = board.rows.length && board.columns.length ? `${file}${rank}` : `column ${file}, row ${rank}`;
  const owner = data.seats[seat] ?? "piece",
    on = seat < 0 ? (sign ? "drawn" : "empty") : board.look === "chess" ? `${owner} ${MEN[sign]}` : owner;
  const playable = marks.legal.has(place) || (action >= 0 && position.legal.some((each) => each.action === action));
  const noted = [[playable && yours(), "can be played"], [place === chosen, "chosen"], [place === marks.best, "suggested"],
                 [alert, "check"], [marks.last.has(place), "last move"],
                 [marks.won.some((line) => line.includes(place)), "winning line"]];
  return [`${label}: ${on}`, ...noted.filter(([holds]) => holds).map(([, word]) => word)].join(", ");
}

// A board with steps keeps its buttons where no step is legal, and so the keyboard
const clickable = (board, place) =>
  board.squares[place].action >= 0 || board.steps.length > 0 || board.look === "chess" || Boolean(data.drawing?.moves);

function boardWords(board) {   // Row by row, for a board without buttons
  const words = board.squares.map(({ seat, sign }) => sign || (seat < 0 ? "empty" : data.seats[seat] ?? "piece")),
    wide = board.widths.length;
  return board.heights.map((_, row) => words.slice(row * wide, (row + 1) * wide).join(", ")).join("; ");
}

function drawBoard() {
  const board = view(), frame = at("board"), hadFocus = frame.contains(document.activeElement);
  frame.replaceChildren();
  if (!board) { drawNumbers(frame); return; }
  const marks = marksOf(board), { made, plan } = picture(board, marks);
  frame.append(made);
  frame.style.maxWidth = `${Math.max(300, Math.min(560, Math.round(1.4 * plan.width)))}px`;
  const places = board.squares.map((_, place) => place).filter((place) => clickable(board, place));
  if (!places.includes(cursor)) [cursor = 0] = places;
  if (!places.length) {
    made.removeAttribute("aria-hidden");
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", boardWords(board));
  }
  for (const place of places) {
    const [x, y, w, h] = plan.places[place],
      wide = board.look === "edges" ? [Math.max(w, 26), Math.max(h, 26)] : [w, h];
    const button = element("button", {
      type: "button",
      tabindex: place === cursor ? 0 : -1,
      "aria-label": placeName(board, place, marks),
      "data-place": place,
    });
    const share = (value, whole) => `${(100 * value) / whole}%`;
    Object.assign(button.style, { left: share(x - wide[0] / 2, plan.width), top: share(y - wide[1] / 2, plan.height),
                                  width: share(wide[0], plan.width), height: share(wide[1], plan.height) });
    button.addEventListener("click", () => { cursor = place; clickPlace(place); });
    frame.append(button);
  }
  if (hadFocus) frame.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
}

function drawText(frame, lines) {   // Lines of text, each sign as wide as the others
  const wide = Math.max(...lines.map((line) => line.length)), high = 18 * lines.length + 16;
  const body = [rect(0, 0, 360, high, { rx: 10, fill: PANEL })];
  for (const [i, line] of lines.entries()) {
    const size = Math.min(14, 340 / (0.62 * wide)), made = shape("text", { x: 10, y: 22 + 18 * i, font_size: size, fill: INK }, line);
    Object.assign(made.style, { fontFamily: "monospace", whiteSpace: "pre" });
    body.push(made);
  }
  frame.append(shape("svg", { viewBox: `0 0 360 ${high}`, role: "img", "aria-label": lines.join("; ") }, ...body));
}

function drawNumbers(frame) {   // A game without a board: its planes as the network sees them, the points of pig, or text
  frame.style.maxWidth = "560px";
  const shown = viewed || position;
  if (data.drawing.kind === "backgammon") { drawText(frame, shown.caption); return; }
  if (!shown.planes) {
    const points = shown.caption.map((line) => Number(line.match(/\d+/)[0])),
      goal = Number(shown.caption[2].match(/of (\d+)/)[1]);
    const names = [seatName(0), seatName(1), "This turn"],
      body = [rect(0, 0, 360, 160, { rx: 10, fill: PANEL })];
    points.forEach((value, i) => {
      const y = 38 + 42 * i,
        left = shape(
          "text",
          { x: 14, y: y + 5, font_size: 14, fill: INK },
          names[i].length > 12 ? `${names[i].slice(0, 11)}…` : names[i],
        );
      body.push(left, rect(112, y - 9, 190, 18, { rx: 5, fill: EMPTY }), words(331, y, value, 15, INK, "bold"));
      body.push(
        rect(112, y - 9, (190 * Math.min(value, goal)) / goal, 18, { rx: 5, fill: [SEATS[0], SEATS[1], GREEN][i] }),
      );
    });
    frame.append(
      shape("svg", { viewBox: "0 0 360 160", role: "img", "aria-label": shown.caption.join(", ") }, ...body),
    );
    return;
  }
  const [count, height, width] = data.shape.length === 3 ? data.shape : [1, 1, shown.planes.length];
  const columns = data.shape.length === 3 ? width : Math.min(width, 16),
    rows = data.shape.length === 3 ? height : Math.ceil(width / columns);
  const across = count > 1 && columns <= 8 ? 2 : 1,
    kept = Math.min(count, 12),
    side = Math.min(40, Math.floor(344 / across / columns) - 1),
    most = Math.max(1, ...shown.planes.map(Math.abs));
  const gap = 14,
    high = Math.ceil(kept / across) * (rows * (side + 1) + gap) + gap,
    left = (360 / across - columns * (side + 1)) / 2,
    body = [rect(0, 0, 360, high, { rx: 10, fill: PANEL })];
  for (let plane = 0; plane < kept; plane++)
    for (let cell = 0; cell < height * width; cell++) {
      const value = shown.planes[plane * height * width + cell];
      const x = left + (plane % across) * 180 + (cell % columns) * (side + 1),
        y = gap + Math.floor(plane / across) * (rows * (side + 1) + gap) + Math.floor(cell / columns) * (side + 1);
      body.push(
        rect(x, y, side - 1, side - 1, {
          rx: 3,
          fill: value ? BLUE : EMPTY,
          fill_opacity: value ? 0.25 + (0.75 * Math.abs(value)) / most : 1,
        }),
      );
      if (data.shape.length === 1 && side >= 14)
        body.push(words(x + side / 2 - 0.5, y + side / 2, cell, 9, value ? "#FFFFFF" : "#5B6470"));
    }
  const ones = shown.planes
    .flatMap((value, i) => (value ? [`${i}: ${value}`] : []))
    .slice(0, 60)
    .join(", ");
  frame.append(
    shape("svg", { viewBox: `0 0 360 ${high}`, role: "img", "aria-label": `What the network sees: ${ones}` }, ...body),
  );
}

function drawButtons() {
  const frame = at("actions"),
    board = position.board,
    can = yours() && !thinking;
  const placed = new Set(
    board
      ? [
          ...board.squares.filter(({ aim }) => aim).map(({ action }) => action),
          ...board.steps.map(({ action }) => action),
        ]
      : [],
  );
  const free = can ? position.legal.filter(({ action }) => !placed.has(action)) : [];
  const share = new Map(hint ? hint.shares : []);
  const nameOf = (action) => position.legal.find((each) => each.action === action)?.name;
  const buttons = (offered.length ? offered.map(({ action, word }) => ({ action, name: word || nameOf(action) })) : free).map(
    ({ action, name }) =>
      element(
        "button",
        { type: "button", "data-action": action, "data-key": action, onclick: () => playAction(action) },
        name + (share.has(action) ? ` · ${Math.round(100 * share.get(action))} %` : ""),
      ),
  );
  frame.replaceChildren(...buttons);
}

function drawMoves() {   // Rolls have no number
  const list = at("moves"), shown = viewed ? viewed.moves.length : position.moves.length;
  let number = 0;
  const entry = (name, i) => {
    const chance = position.movers[i] === -2, current = i + 1 === shown ? { "aria-current": "true" } : {};
    const seat = chance || data.seats.length < 3 ? "" : `${seatName(position.movers[i])}: `;
    const words = chance ? name : `${++number}. ${seat}${name}`;
    return element("li", {}, element("button", { type: "button", class: chance ? "chance" : "", "data-key": i, ...current,
                                                 onclick: () => look(i + 1) }, words));
  };
  list.replaceChildren(...position.names.map(entry));
  const current = list.querySelector("[aria-current]"), frame = list.getBoundingClientRect();
  if (current) {   // In the list alone: `scrollIntoView` would take the board of a small screen away
    const { top, bottom } = current.getBoundingClientRect();
    list.scrollTop += Math.min(0, top - frame.top) + Math.max(0, bottom - frame.bottom);
  }
  at("back").hidden = !viewed;
}

const chanceOf = (mean) => Math.round(50 + 50 * mean);

function showSearch({ visits, means, evaluations, seconds }) {
  const rate = seconds > 0.05 ? `, ${Math.round(evaluations / seconds).toLocaleString("en")} evaluations a second` : "";
  at("effort").textContent = `${visits.toLocaleString("en")} visits${rate}`;
  drawBar(means);
}

function drawBar(means) {
  const bar = at("bar"), share = chanceOf(means[0]), drawn = position.board?.look || "holes";
  const look = drawn === "tiles" ? "holes" : drawn, two = data.seats.length === 2;   // The colours of the pieces
  at("share").style.width = `${share}%`;
  at("share").style.background = seatColor(look, 0);
  bar.style.background = two ? seatColor(look, 1) : "";
  const chances = data.seats.map((name, seat) => `${name} ${chanceOf(means[seat])} %`);
  if (two && data.zeroSum) chances[1] = `${seatName(1)} ${100 - share} %`;   // Rounded apart, they may make 101
  const text = alone ? `Expected result: ${means[0].toFixed(2)}` : chances.join(", ");
  at("expected").textContent = text;
  bar.setAttribute("aria-label", `Expected result: ${text}`);
}

function showExpected() {   // What the newest search of this line has found
  const newest = Math.max(-1, ...results.keys());
  if (newest >= 0) { drawBar(results.get(newest)); return; }
  for (const id of ["expected", "effort"]) at(id).textContent = "";
  at("share").style.width = "50%";
  at("bar").setAttribute("aria-label", "Expected result");
}

function drawCurve() {
  const frame = at("curve"), points = [...results].sort((a, b) => a[0] - b[0]);
  frame.replaceChildren();
  frame.hidden = alone || !over() || points.length < 2;
  if (frame.hidden) return;
  const last = Math.max(1, position.moves.length), x = (ply) => 44 + (300 * ply) / last, y = (mean) => 60 - 46 * mean;
  points.push([position.moves.length, position.returns]);
  frame.append(
    element("h2", {}, `Expected result of ${seatName(0)}`),
    shape(
      "svg",
      {
        viewBox: "0 0 360 132",
        role: "img",
        "aria-label": points.map(([ply, means]) => `move ${movesIn(ply)}: ${chanceOf(means[0])} %`).join(", "),
      },
      ...[1, 0, -1].map((mean) => stroke(44, y(mean), 344, y(mean), "#8a93a0", 0.7, 0.6)),
      ...[1, 0, -1].map((mean) =>
        shape(
          "text",
          { x: 38, y: y(mean) + 4, font_size: 11, text_anchor: "end", class: "axis" },
          `${chanceOf(mean)} %`,
        ),
      ),
      shape("text", { x: 344, y: 128, font_size: 11, text_anchor: "end", class: "axis" }, `${movesIn(last)} moves`),
      shape("polyline", {
        points: points.map(([ply, means]) => `${x(ply)},${y(means[0])}`).join(" "),
        fill: "none",
        stroke: BLUE,
        stroke_width: 2.5,
        stroke_linejoin: "round",
      }),
    ),
  );
}

const movesIn = (count) => position.movers.slice(0, count).filter((mover) => mover !== -2).length;   // Without rolls

function status() {
  if (failed) return `The game stopped: ${failed}.`.replace(/\.\.$/, ".");
  if (viewed) return `After move ${movesIn(viewed.moves.length)} of ${movesIn(position.moves.length)}.`;
  if (over()) {
    if (alone)
      return `The game is over. ${position.caption[0] || `Result: ${position.returns[0].toFixed(2)}`}`;
    const most = Math.max(...position.returns),
      best = position.returns.flatMap((result, seat) => (result === most ? [seat] : []));
    return best.length === data.seats.length ? "The game is a draw." : `${best.map(who).join(" and ")} won.`;
  }
  if (thinking) return "The agent is thinking…";
  if (yours()) return humans().length > 1 ? `${seatName(position.mover)} to move.` : "Your move.";
  return `${seatName(position.mover)} to move.`;
}

function findKeyboard() {   // The buttons that a redraw may take away: the focus is there, or was and is nowhere now
  const now = document.activeElement, group = ["actions", "moves"].find((id) => at(id).contains(now));
  if (group) return [group, now.dataset.key];
  if (["hint", "stop", "undo"].includes(now.id)) return ["controls", now.id];
  if (now === at("back")) return ["moves", String(position.moves.length - 1)];
  return now === document.body ? held : null;
}

function returnKeyboard() {   // To the same button, else to the first of its kind, or to the board; later if there is none now
  if (!held) return;
  const [group, key] = held;
  const kin = group === "controls" ? [key, "hint", "stop", "new"].map(at) : [...at(group).querySelectorAll("button")];
  const free = kin.filter((button) => !button.hidden && !button.disabled);
  if (group === "actions") free.push(...at("board").querySelectorAll('[tabindex="0"]'));
  (free.find((button) => button.dataset.key === key) || free[0])?.focus({ preventScroll: true });
}

function render(text = "") {
  for (const id of ["undo", "copy", "hint"]) at(id).disabled = !position;
  if (!position) { at("status").textContent = failed ? status() : "Loading…"; return; }
  held = findKeyboard();
  drawBoard();
  drawButtons();
  drawMoves();
  drawCurve();
  at("status").textContent = status();
  at("status").classList.toggle("wrong", Boolean(failed));
  at("caption").replaceChildren(...(viewed || position).caption.map((line) => element("div", {}, line)));
  at("caption").hidden = !position.caption.length || (!position.board && !position.planes);
  say(text);
  at("stop").hidden = !thinking;
  at("hint").hidden = thinking;
  at("hint").disabled = !yours();
  at("undo").disabled = position.moves.length === 0;
  at("swap").hidden = at("bar").hidden = alone;
  at("swap").disabled = humans().length !== 1;
  returnKeyboard();
}

function arrowKey(event) {   // One tab stop; arrows move the cursor to the nearest square in that direction
  const way = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
  if (!way || !position?.board || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  const board = view(), { places } = layout(board), [x, y] = places[cursor];
  let best = -1, least = Infinity;
  board.squares.forEach((_, place) => {
    if (!clickable(board, place)) return;
    const dx = places[place][0] - x,
      dy = places[place][1] - y,
      along = dx * way[0] + dy * way[1],
      across = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
    if (along > 1 && along + 3 * across < least) {
      least = along + 3 * across;
      best = place;
    }
  });
  if (best < 0) return;
  for (const button of at("board").querySelectorAll("button"))
    button.tabIndex = Number(button.dataset.place) === best ? 0 : -1;
  cursor = best;
  at("board").querySelector('[tabindex="0"]').focus();
}

document.addEventListener("keydown", (event) => {
  // 2048: arrows anywhere
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (
    !position?.board ||
    position.board.look !== "tiles" ||
    event.target instanceof HTMLSelectElement ||
    event.target instanceof HTMLInputElement
  )
    return;
  const found = position.legal.find(({ name }) => event.key === `Arrow${name[0].toUpperCase()}${name.slice(1)}`);
  if (event.key.startsWith("Arrow")) event.preventDefault();
  if (found) playAction(found.action);
});

function fill() {
  at("title").textContent = data.title;
  at("author").textContent = data.author ? `by ${data.author}` : "";
  at("note").textContent = data.note;
  document.querySelector("details").hidden = !data.note && !data.facts.length;
  at("facts").replaceChildren(...data.facts.map((line) => element("li", {}, line)));
  const choice = (value, text) => element("option", { value }, text);
  at("seat").replaceChildren(
    ...data.seats.map((name, seat) => choice(seat, alone ? "You" : name)),
    ...(data.seats.length > 1 ? [choice("all", "both sides")] : []),
    choice("none", "nobody, watch"),
  );
  if (data.seats.length > 2) at("seat").querySelector('[value="all"]').textContent = "all sides";
  const most = data.levels.length, below = (elo) => (elo ? ` (${Math.round(elo)} Elo)`.replace("-", "\u2212") : "");
  const levels = data.levels.map(({ elo }, k) =>
    choice(`level${k + 1}`, `Level ${k + 1}${k + 1 === most ? " (full)" : below(elo)}`));
  const efforts = data.efforts.map((count) => choice(count, `${count.toLocaleString("en")} simulations`));
  at("level").replaceChildren(element("optgroup", { label: "Levels" }, ...levels),
                              element("optgroup", { label: "Always the best move" }, ...efforts));
  at("level").value = `level${most}`;
  at("matching").hidden = data.seats.length !== 2;
  at("match").checked = false;   // Some browsers remember it
  at("match").addEventListener("change", () => { matchLevel(); counted = latest().length > 0; });
  at("board").addEventListener("keydown", arrowKey);
  const buttons = {
    hint: showHint,
    undo,
    new: newGame,
    swap: swapSides,
    copy: copyLink,
    back: () => look(position.moves.length),
    stop: () => worker?.postMessage({ kind: "stop" }),
  };
  for (const [id, run] of Object.entries(buttons)) at(id).addEventListener("click", run);
  for (const id of ["hint", "stop"])   // One takes the other's place, so a key that is held down would press them by turns
    at(id).addEventListener("keydown", (event) => { if (event.repeat) event.preventDefault(); });
  at("seat").addEventListener("change", changeSeats);
  window.addEventListener("hashchange", () => { if (failed || opening?.other || location.hash !== written) openLink(); });
}

fill();
openLink();
