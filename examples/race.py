"""A race for three players: throw a die, move one of your two runners; who lands on a runner of another sends it back to
the start. The first player with both runners home wins.

    alphazero-nb train race --rules examples/race.py --minutes 5
"""
from numba import njit
from alphazero_nb.all import Game, register

SEAT, DIE, ROLLING, WINNER, TRACK = range(5)   # From TRACK on the place of each runner, two for each seat
HOME, CHANCE = 14, -2                          # Places 1 to 13 are the track


@njit
def can_move(state, runner): return state[TRACK + 2 * state[SEAT] + runner] < HOME


def start(state, seed): state[DIE], state[WINNER] = seed % 6 + 1, -1   # The first throw; later ones are chance moves


def mover(state):
    if state[WINNER] >= 0: return -1
    return CHANCE if state[ROLLING] else state[SEAT]


def chance(state, probabilities):
    for face in range(6): probabilities[face] = 1 / 6


def legal(state, actions):
    count = 0
    for runner in range(2):
        if can_move(state, runner):
            actions[count] = runner
            count += 1
    return count


def play(state, action):
    if state[ROLLING]:
        state[DIE], state[ROLLING] = action + 1, 0
        return
    mine = TRACK + 2 * state[SEAT] + action
    state[mine] = min(HOME, state[mine] + state[DIE])
    for other in range(TRACK, TRACK + 6):
        if (other - TRACK) // 2 != state[SEAT] and state[other] == state[mine] < HOME: state[other] = 0
    if not can_move(state, 0) and not can_move(state, 1): state[WINNER] = state[SEAT]
    state[SEAT], state[ROLLING] = (state[SEAT] + 1) % 3, 1


def returns(state, out):
    if state[WINNER] < 0: return
    for seat in range(3): out[seat] = 1 if seat == state[WINNER] else -0.5


def observe(state, planes):
    for k in range(6):   # The mover's runners first, then those of the next players
        planes[(HOME + 1) * k + state[TRACK + (2 * state[SEAT] + k) % 6]] = 1
    if not state[ROLLING]: planes[6 * (HOME + 1) + state[DIE] - 1] = 1


def text(state):
    runners = "  ".join(f"player {seat}: {state[TRACK + 2 * seat]}, {state[TRACK + 2 * seat + 1]}" for seat in range(3))
    return f"{runners}  (home is {HOME}; the die shows {state[DIE]})"


register("race", lambda: Game(
    "race", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe, chance=chance, outcomes=6,
    state_size=TRACK + 6, players=3, actions=2, shape=(6 * (HOME + 1) + 6,), max_length=2000, text=text,
    action_names=lambda runner: f"runner {runner + 1}", outcome_names=lambda face: f"a {face + 1}"))
