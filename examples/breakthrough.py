"""Breakthrough (Dan Troyka, 2000): pieces go one step forward, straight or diagonally, and capture diagonally. Whoever
reaches the last row, or takes the last piece, wins.

    alphazero-nb train "breakthrough(size=5)" --rules examples/breakthrough.py --minutes 10
"""
import numpy as np
from numba import njit
from alphazero_nb.all import Game, register

SEAT, SIZE, WINNER, BOARD = range(4)   # WINNER is the seat + 1; a square has 1 or 2 for a piece of seat 0 or 1
# The mover always sees the own pieces at the bottom: action 3 * square + (0 left, 1 straight, 2 right). The network has a
# plane of its own for each direction.


@njit
def at(state, square):
    "The index of a square as the mover sees it."
    cells = state[SIZE] ** 2
    return BOARD + (square if state[SEAT] == 0 else cells - 1 - square)


@njit
def allowed(state, action):
    size, square = state[SIZE], action // 3
    row, column = square // size - 1, square % size + action % 3 - 1
    if row < 0 or column < 0 or column >= size or state[at(state, square)] != state[SEAT] + 1: return False
    there = state[at(state, row * size + column)]
    return there == 0 or (action % 3 != 1 and there == 2 - state[SEAT])


def start_with(size):
    def start(state, seed):
        state[SIZE] = size
        for k in range(2 * size): state[BOARD + k], state[BOARD + size * size - 1 - k] = 2, 1
    return start


def mover(state): return state[SEAT] if state[WINNER] == 0 else -1


def legal(state, actions):
    count = 0
    for action in range(3 * state[SIZE] ** 2):
        if allowed(state, action):
            actions[count] = action
            count += 1
    return count


def play(state, action):
    size, seat = state[SIZE], state[SEAT]
    square, target = action // 3, action // 3 - size + action % 3 - 1
    state[at(state, square)], state[at(state, target)] = 0, seat + 1
    left = 0
    for cell in range(size * size): left += state[BOARD + cell] == 2 - seat
    if target < size or left == 0: state[WINNER] = seat + 1
    state[SEAT] = 1 - seat


def returns(state, out): out[state[WINNER] - 1], out[2 - state[WINNER]] = 1, -1


def observe(state, planes):
    cells = state[SIZE] ** 2
    for square in range(cells):
        piece = state[at(state, square)]
        if piece > 0: planes[square + cells * (piece != state[SEAT] + 1)] = 1


def breakthrough(size: int = 6) -> Game:
    if size not in range(4, 11): raise ValueError(f"breakthrough: size is {size!r}; choose 4 to 10.")
    places = np.arange(size * size)[:, None] + size * size * np.arange(3)   # plane * squares + square
    return Game(f"breakthrough(size={size})", start=start_with(size), mover=mover, legal=legal, play=play, returns=returns,
                observe=observe, state_size=BOARD + size * size, players=2, actions=3 * size * size, shape=(2, size, size),
                max_length=4 * size * size, cells=places.ravel())


register("breakthrough", breakthrough)
