"""Domineering: the first player puts dominoes down upright, the second one flat; who cannot move loses.

    alphazero-nb train "domineering(size=6)" --rules examples/domineering.py --minutes 5

On 5 x 5 squares the second player wins (Breuker, Uiterwijk and van den Herik 2000, "Solving 8x8 Domineering").
"""
import numpy as np
from numba import njit
from alphazero_nb.all import Game, register

SEAT, SIZE, BOARD = 0, 1, 2   # A square is 0, or 1 or 2 if a domino of that seat is on it


@njit
def fits(state, cell):
    "Whether a domino of the mover fits with its upper or left half on this square."
    size = state[SIZE]
    if state[SEAT] == 0: inside, other = cell < size * (size - 1), cell + size
    else: inside, other = cell % size < size - 1, cell + 1
    return inside and state[BOARD + cell] == 0 and state[BOARD + other] == 0


def start_with(size):
    def start(state, seed): state[SIZE] = size
    return start


def mover(state):
    for cell in range(state[SIZE] ** 2):
        if fits(state, cell): return state[SEAT]
    return -1


def legal(state, actions):
    count = 0
    for cell in range(state[SIZE] ** 2):
        if fits(state, cell):
            actions[count] = cell
            count += 1
    return count


def play(state, action):
    state[BOARD + action] = state[SEAT] + 1
    state[BOARD + action + (state[SIZE] if state[SEAT] == 0 else 1)] = state[SEAT] + 1
    state[SEAT] = 1 - state[SEAT]


def returns(state, out): out[state[SEAT]], out[1 - state[SEAT]] = -1, 1


def observe(state, planes):
    cells = state[SIZE] ** 2
    for cell in range(cells):
        if state[BOARD + cell] == state[SEAT] + 1: planes[cell] = 1
        elif state[BOARD + cell] > 0: planes[cells + cell] = 1
        planes[2 * cells + cell] = state[SEAT]


def text(state):
    size = int(state[SIZE])
    return "\n".join(" ".join(".|-"[cell] for cell in row) for row in state[BOARD:].reshape(size, size))


def domineering(size: int = 5) -> Game:
    if size not in range(2, 13): raise ValueError(f"domineering: size is {size!r}; choose 2 to 12.")
    cells = size * size
    return Game(f"domineering(size={size})", start=start_with(size), mover=mover, legal=legal, play=play,
                returns=returns, observe=observe, text=text, state_size=BOARD + cells, players=2, actions=cells,
                shape=(3, size, size), max_length=cells // 2, cells=np.arange(cells))


register("domineering", domineering)
