"use strict";
// Levels of strength: the twin of alphazero_nb/search/levels.py, for the page and its worker.

const FLOOR = 0.1, DRIFT = 20, STEP = 10;   // DRIFT and STEP in Elo

function choiceWeights(visits, temperature) {   // Of each legal action; returns the probability of each
  const counts = visits.map((count) => count + 1), most = Math.max(...counts);
  const weights = counts.map((count) => count / most >= FLOOR ? (count / most) ** (1 / temperature) : 0);
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

function chooseBy(weights, random) {   // random: 0 to 1
  let left = random;
  const found = weights.findIndex((weight) => (left -= weight) < 0);
  return found < 0 ? weights.findLastIndex((weight) => weight > 0) : found;
}

function levelBetween(levels, number) {   // 1 to levels.length; a fraction lies between two levels
  const below = Math.min(Math.floor(number), levels.length - 1), low = levels[below - 1], share = number - below;
  const high = levels[Math.min(below, levels.length - 1)], mix = (a, b) => a + (b - a) * share;
  const simulations = Math.round(2 ** mix(Math.log2(low.simulations), Math.log2(high.simulations)));
  return { simulations: Math.max(1, simulations), temperature: mix(low.temperature, high.temperature) };
}

function between(x, xs, ys) {   // Between two neighbours of an increasing list, or at its ends
  if (x <= xs[0]) return ys[0];
  for (let k = 1; k < xs.length; k++)
    if (x < xs[k]) return ys[k - 1] + ((ys[k] - ys[k - 1]) * (x - xs[k - 1])) / (xs[k] - xs[k - 1]);
  return ys[ys.length - 1];
}

function normal(numbers, width) {
  const chances = numbers.map((x) => Math.exp(-0.5 * (x / width) ** 2)), sum = chances.reduce((a, b) => a + b, 0);
  return chances.map((chance) => chance / sum);
}

class Rating {   // The strength of one person on the scale of the levels, after each game
  constructor(levels) {
    this.numbers = levels.map((_, k) => k + 1);
    this.elos = levels.map(({ elo }, k) => elo ?? 100 * (k + 1 - levels.length));
    const first = this.elos[0], last = this.elos[this.elos.length - 1];
    this.grid = Array.from({ length: Math.ceil((last + 601 - (first - 600)) / STEP) }, (_, k) => first - 600 + STEP * k);
    this.chances = normal(this.grid.map((elo) => elo - (first + last) / 2), Math.max(200, (last - first) / 2));
    this.games = 0;
  }

  update(score, level) {   // score: 1, 0.5 or 0 for the person; level: that of the opponent
    const elo = between(level, this.numbers, this.elos);
    const likely = this.grid.map((own, k) => {
      const expected = 1 / (1 + 10 ** ((elo - own) / 400));
      return this.chances[k] * expected ** score * (1 - expected) ** (1 - score);
    });
    const spread = normal(Array.from({ length: 41 }, (_, k) => STEP * (k - 20)), DRIFT);
    const mixed = likely.map((_, k) => spread.reduce((sum, share, j) => sum + share * (likely[k + 20 - j] ?? 0), 0));
    const total = mixed.reduce((a, b) => a + b, 0);
    this.chances = mixed.map((chance) => chance / total);
    this.games++;
  }

  levelOf(elo) {
    let most = -Infinity;
    return between(elo, this.elos.map((each) => (most = Math.max(most, each))), this.numbers);
  }

  get level() { return this.levelOf(this.chances.reduce((sum, chance, k) => sum + chance * this.grid[k], 0)); }

  get interval() {   // 95 %, in levels
    return [0.025, 0.975].map((share) => {
      let below = 0;
      return this.levelOf(this.grid[this.chances.findIndex((chance) => (below += chance) >= share)]);
    });
  }
}
