"""Peg solitaire on a triangle, for one player: a peg jumps over another one, which is taken off. The fewer are left, the better.

    alphazero-nb train pegs --rules examples/pegs.py --minutes 2
"""
import numpy as np
from numba import njit
from alphazero_nb.all import Game, register

HOLES = [(row, column) for row in range(5) for column in range(row + 1)]
WAYS = [(0, 2), (0, -2), (2, 0), (-2, 0), (2, 2), (-2, -2)]
JUMPS = np.array([(HOLES.index((r, c)), HOLES.index((r + y // 2, c + x // 2)), HOLES.index((r + y, c + x)))
                  for r, c in HOLES for y, x in WAYS if (r + y, c + x) in HOLES])   # (start, over, to)


def start(state, seed):   # One hole is free
    for hole in range(15): state[hole] = hole != seed % 15


@njit
def can_jump(state, jump):
    start, over, to = JUMPS[jump]
    return state[start] == 1 and state[over] == 1 and state[to] == 0


def mover(state):
    for jump in range(len(JUMPS)):
        if can_jump(state, jump): return 0
    return -1


def legal(state, actions):
    count = 0
    for jump in range(len(JUMPS)):
        if can_jump(state, jump):
            actions[count] = jump
            count += 1
    return count


def play(state, action):
    for k in range(3): state[JUMPS[action, k]] = k == 2


def returns(state, out):
    left = 0
    for hole in range(15): left += state[hole]
    out[0] = 1 - (left - 1) / 4   # 1 for a single peg, 0 for five; never below −1
    if out[0] < -1: out[0] = -1


def observe(state, planes):
    for hole in range(15): planes[hole] = state[hole]


def text(state):
    rows, at = [], 0
    for size in range(1, 6):
        rows.append(" " * (5 - size) + " ".join(".o"[peg] for peg in state[at:at + size]))
        at += size
    return "\n".join(rows)


def name_of(jump): return f"{JUMPS[jump, 0] + 1} over {JUMPS[jump, 1] + 1}"


register("pegs", lambda: Game(
    "pegs", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe, text=text, state_size=15,
    players=1, actions=len(JUMPS), shape=(15,), max_length=13, action_names=name_of))
