// Plays games and searches in Node with the driver and the module of a page, for tests/unit/test_web.py.
//   node web_node.js DRIVER MODULE JOB     the job is JSON; the answer is JSON on standard output
const fs = require("fs"), crypto = require("crypto");
const [driver, file, job] = process.argv.slice(2);
const { Compiled } = new Function(fs.readFileSync(driver, "utf8") + "; return { Compiled, RuleError };")();

function play(game, { seed, actions }) {   // A hash over every position of a game
  const hash = crypto.createHash("sha256"), note = (array) => hash.update(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
  game.start(seed);
  for (let ply = 0; ; ply++) {
    const mover = game.mover, legal = game.legal();
    note(Int32Array.from([mover, ...legal]));
    note(game.state);
    note(game.returns());
    if (mover >= 0) note(game.inputs());
    if (ply === actions.length) return hash.digest("hex");
    game.play(actions[ply]);
  }
}

function evaluate(game, rows) {   // The same numbers as `evaluate` of the test, from the inputs alone
  const logits = new Float32Array(rows.offsets[rows.count]), values = new Float32Array(rows.count * game.size.players);
  for (let row = 0; row < rows.count; row++) {
    let hash = 17;
    for (let i = 0; i < game.size.inputs; i++) hash = (hash * 31 + rows.inputs[row * game.size.inputs + i]) % 1000003;
    hash = (hash + 1000003) % 1000003;
    for (let k = rows.offsets[row]; k < rows.offsets[row + 1]; k++) logits[k] = (hash * (rows.actions[k] + 7)) % 257 / 64;
    for (let seat = 0; seat < game.size.players; seat++) values[row * game.size.players + seat] = (hash + 11 * seat) % 201 / 100 - 1;
    if (game.size.players === 2) values[2 * row + 1] = -values[2 * row];
  }
  game.apply(logits, values);
}

function search(game, settings) {
  for (let rows; (rows = game.gather(settings, settings.most)) === null || rows.count > 0;) if (rows) evaluate(game, rows);
  const root = game.root();
  return settings.traps ? { ...root, stopped: game.trap(0), trap: game.trap() } : root;
}

function searches(game, { state, seed, line, settings }) {   // The root after each move of a line, the subtree kept
  game.state.set(state);
  game.begin(...seed);
  const roots = [search(game, settings)];
  for (const { action, rolls } of line) {
    game.state.set(state);
    game.play(action);
    for (const roll of rolls) game.play(roll);
    state = game.state.slice();
    const kept = game.follow(action);
    roots.push({ kept, ...search(game, settings) });
  }
  return roots;
}

function answer(game, state) {   // The network's logits and values of one position
  game.state.set(state);
  game.begin(0, 0);
  const rows = game.gather({ simulations: 1, c_puct: 1.5, fpu: 0.2, proofs: true });
  game.evaluate(0);
  return { logits: Array.from(game.view(Float32Array, "LOGITS", rows.actions.length)),
           values: Array.from(game.view(Float32Array, "VALUES", game.size.players)) };
}

Compiled.load(fs.readFileSync(file)).then((game) => {
  const { visits, leaves, games, positions, network, states } = JSON.parse(fs.readFileSync(job));
  game.reserve(visits, leaves);
  if (network) game.install({ ...network, weights: new Float32Array(Uint8Array.from(Buffer.from(network.weights, "base64")).buffer) });
  const timed = (work) => { const begin = performance.now(), answers = work(); return { answers, seconds: (performance.now() - begin) / 1000 }; };
  const attempt = (work, item) => { try { return work(game, item); } catch (error) { return { error: error.message }; } };
  process.stdout.write(JSON.stringify({ exports: Object.keys(game.exports).sort(), sizes: game.size, games: (games || []).map((item) => attempt(play, item)),
                                        searches: (positions || []).map((item) => attempt(searches, item)),
                                        ...timed(() => (states || []).map((item) => attempt(answer, item))) }));
});
