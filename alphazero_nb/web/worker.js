// Runs the rules and the search of a page, apart from what it shows. A search runs in slices of some milliseconds, with
// room for messages between them. Needs `Compiled` of the driver, boards.js and levels.js.

const SLICE_MS = 12, PROGRESS_MS = 120, MOST_MOVES = 20000;
let game, data, line, tree = null, job = null;

const same = (moves, others) => moves.every((move, i) => move === others[i]);

function bytesOf(text) { return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)); }

function floatsOf(bytes) {   // Numbers of 16 bits
  const halves = new Uint16Array(bytes.buffer), floats = new Float32Array(halves.length);
  for (let i = 0; i < halves.length; i++) {
    const half = halves[i], exponent = (half >> 10) & 31, fraction = half & 1023;
    const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction;
    floats[i] = half >> 15 ? -size : size;
  }
  return floats;
}

async function open(given) {
  data = given;
  game = await Compiled.load(bytesOf(data.module));
  game.reserve(data.room, 1);
  const { steps, outputs, floats, weights } = data.network;
  game.install({ steps, outputs, floats, weights: floatsOf(bytesOf(weights)) });
}

function startLine(seed) {
  game.start(seed);
  if (data.start) game.state.set(data.start);
  line = { seed, moves: [], states: [game.state.slice()], movers: [game.mover], names: [] };
}

function nameOf(state, mover, action) {
  if (mover === -2) return data.outcomes[action];
  if (data.drawing.kind === "backgammon") return backgammonStep(state, action);
  return data.drawing.kind === "chess" ? chessMove(state, action, data.drawing) : data.names[action] ?? String(action);
}

function step(action) {
  const at = line.moves.length, state = line.states[at], mover = line.movers[at];
  game.state.set(state);
  if (!game.legal().includes(action)) throw new RuleError(`move ${at + 1} is not legal`);   // From a link
  game.play(action);
  line.moves.push(action);
  line.names.push(nameOf(state, mover, action));
  line.states.push(game.state.slice());
  line.movers.push(game.mover);
}

function go(seed, moves) {   // Replay the moves that are not on the line already
  if (moves.length > MOST_MOVES) throw new RuleError("this game has too many moves");
  if (!line || line.seed !== seed) { startLine(seed); tree = null; }
  let kept = 0;
  while (kept < Math.min(moves.length, line.moves.length) && moves[kept] === line.moves[kept]) kept++;
  for (const part of [line.moves, line.names]) part.length = kept;
  for (const part of [line.states, line.movers]) part.length = kept + 1;
  for (const move of moves.slice(kept)) step(move);
}

function roll() {   // Chance moves until a player does
  while (line.movers[line.moves.length] === -2) {
    game.state.set(line.states[line.moves.length]);
    step(game.outcome(Math.random() || 0.5));
  }
}

function legalAt(at) {
  game.state.set(line.states[at]);
  return line.movers[at] >= 0 ? game.legal() : [];
}

function boardAt(at) { return drawBoard(game, data.drawing, line.states.slice(0, at + 1), legalAt(at)); }

function planesAt(at) {   // Rules need not know what to show where nobody is to move; then those of the last player stay
  for (;; at--) {
    game.state.set(line.states[at]);
    try { return Array.from(game.inputs().subarray(0, game.size.observation)); }
    catch (error) { if (at === 0 || line.movers[at] >= 0) throw error; }
  }
}

function position() {   // What the page shows
  const at = line.moves.length, state = line.states[at], mover = line.movers[at], legal = legalAt(at);
  game.state.set(state);
  const returns = Array.from(game.returns()), drawn = boardAt(at);
  let last = [], by = at - 1;
  while (by >= 0 && line.movers[by] === -2) by--;
  if (drawn && by >= 0) last = lastPlaces(boardAt(by), drawn, line.moves[by]);
  const planes = drawn || ["pig", "backgammon"].includes(data.drawing.kind) ? null : planesAt(at);
  return {
    moves: [...line.moves],
    names: [...line.names],
    movers: [...line.movers],
    mover,
    board: drawn,
    last,
    won: drawn && mover === -1 ? winningLines(drawn) : [],
    returns,
    planes,
    legal: legal.map((action) => ({ action, name: nameOf(state, mover, action) })),
    caption: caption(state, data.drawing),
  };
}

function plant() {   // Make the current position the root, with what an earlier search knows about it
  const at = line.moves.length;
  if (tree && tree.length <= at && same(tree, line.moves)) {
    for (let i = tree.length; i < at;) {
      const action = line.moves[i++];
      while (line.movers[i] === -2) i++;
      game.state.set(line.states[i]);
      game.follow(action);
    }
  } else {
    game.state.set(line.states[at]);
    game.begin((Math.random() * 2 ** 31) | 0, (Math.random() * 2 ** 31) | 0);
  }
  tree = [...line.moves];
}

function trapMove() {   // A look at 100,000 positions, and at a million where that takes some seconds at most
  if (job.stop) return game.trap(0);   // After a stop it looks for no trap
  const begin = performance.now(), action = game.trap(100000);
  return performance.now() - begin > 300 ? action : game.trap();
}

function found(over = false) {
  const root = game.root(), total = root.playable.reduce((sum, visits) => sum + visits, 0) || 1;
  const shares = root.actions.map((action, k) => [action, root.playable[k] / total]);
  return {
    visits: root.visits,
    means: root.means.map((mean) => Math.min(1, Math.max(-1, mean))),   // A network may expect more than there is
    shares,
    evaluations: job.evaluations,
    seconds: (performance.now() - job.begin) / 1000,
    action: job.temperature > 0 ? root.actions[chooseBy(choiceWeights(root.playable, job.temperature), Math.random())]
      : over ? trapMove() : game.trap(0),
  };
}

function think(id, { seed, moves, simulations, temperature = 0 }) {
  go(seed, moves);
  if (temperature > 0) tree = null;   // What a deeper search knows would make a level too strong
  plant();
  if (game.root().visits > simulations + 1) { tree = null; plant(); }   // A search with more simulations made this tree
  job = { id, begin: performance.now(), shown: performance.now(), evaluations: 0, stop: false, temperature,
          settings: { ...data.settings, simulations: Math.min(simulations, data.room) } };
  channel.port2.postMessage(0);
}

function run() {   // A slice of the search. Returns true at its end.
  const end = performance.now() + SLICE_MS;
  do {
    const rows = game.gather(job.settings, 64);
    if (rows === null) continue;
    if (rows.count === 0) return true;
    for (let row = 0; row < rows.count; row++) game.evaluate(row);
    game.evaluated();
    job.evaluations += rows.count;
  } while (performance.now() < end);
  return job.stop && game.root().visits > 0;
}

const channel = new MessageChannel();
channel.port1.onmessage = () => {
  if (!job) return;
  const { id } = job;
  try {
    const done = run(), now = performance.now();
    if (done) {
      const result = found(true);
      job = null;
      self.postMessage({ id, result });
      return;
    }
    if (now > job.shown + PROGRESS_MS) { job.shown = now; self.postMessage({ progress: found() }); }
    channel.port2.postMessage(0);
  } catch (error) { job = null; tree = null; self.postMessage({ id, error: error.message }); }
};

let opened = null;   // What comes while the game is loaded waits for it
const answers = {
  open: async (given) => { await (opened = open(given)); return true; },
  show: ({ seed, moves }) => { go(seed, moves); roll(); return position(); },
  look: ({ seed, moves }) => { go(seed, moves); return position(); },
};

self.onmessage = async ({ data: { id, kind, ...rest } }) => {
  try {
    if (kind !== "open") await opened;
    if (kind === "stop") { if (job) job.stop = true; return; }
    if (kind === "cancel") {
      if (job) self.postMessage({ id: job.id, error: "cancelled" });   // The page waits for an answer to each message
      job = null;
      return;
    }
    if (kind === "think") { think(id, rest); return; }
    self.postMessage({ id, result: await answers[kind](rest) });
  } catch (error) { self.postMessage({ id, error: error.message }); }
};
