"""Ultimate tic-tac-toe: nine boards of tic-tac-toe make a large one. A move sends the opponent to the board of the same
place; if that one is finished, the opponent may choose.

    alphazero-nb train ultimate --rules examples/ultimate.py --minutes 10
"""
import numpy as np
from numba import njit
from alphazero_nb.all import Game, register

SEAT, NEXT, BIG, CELLS = 0, 1, 2, 11   # NEXT: the board to play on, −1 for any; BIG: results of the boards; then 81 cells
OPEN, DRAWN = 0, 3                     # A board or cell is open, 1 or 2 for a seat; a full board without a line is drawn


@njit
def has_line(state, first, mark):
    "Whether nine numbers from `first` on have three in a row of a mark."
    for k in range(3):
        if state[first + 3 * k] == state[first + 3 * k + 1] == state[first + 3 * k + 2] == mark: return True
        if state[first + k] == state[first + k + 3] == state[first + k + 6] == mark: return True
    if state[first + 4] != mark: return False
    return state[first] == state[first + 8] == mark or state[first + 2] == state[first + 6] == mark


@njit
def is_over(state):
    if has_line(state, BIG, 1) or has_line(state, BIG, 2): return True
    for board in range(9):
        if state[BIG + board] == OPEN: return False
    return True


def start(state, seed): state[NEXT] = -1


def mover(state): return -1 if is_over(state) else state[SEAT]


def legal(state, actions):
    count = 0
    for action in range(81):   # Action 9 * board + cell
        board = action // 9
        if state[NEXT] >= 0 and state[NEXT] != board or state[BIG + board] != OPEN: continue
        if state[CELLS + action] == 0:
            actions[count] = action
            count += 1
    return count


def play(state, action):
    board, mark = action // 9, state[SEAT] + 1
    state[CELLS + action] = mark
    full = True
    for cell in range(9): full = full and state[CELLS + 9 * board + cell] > 0
    if has_line(state, CELLS + 9 * board, mark): state[BIG + board] = mark
    elif full: state[BIG + board] = DRAWN
    state[NEXT] = action % 9 if state[BIG + action % 9] == OPEN else -1
    state[SEAT] = 1 - state[SEAT]


def returns(state, out):
    for seat in range(2):
        if has_line(state, BIG, seat + 1): out[seat], out[1 - seat] = 1, -1


def observe(state, planes):
    for action in range(81):   # The large board, 9 × 9 squares
        board, cell = action // 9, action % 9
        place = 27 * (board // 3) + 9 * (cell // 3) + 3 * (board % 3) + cell % 3
        for k, number in enumerate((state[CELLS + action], state[BIG + board])):
            if number == state[SEAT] + 1: planes[162 * k + place] = 1
            elif number == 2 - state[SEAT]: planes[162 * k + 81 + place] = 1
        planes[324 + place] = state[BIG + board] == OPEN and (state[NEXT] < 0 or state[NEXT] == board)


places = np.array([27 * (a // 27) + 9 * (a % 9 // 3) + 3 * (a // 9 % 3) + a % 3 for a in range(81)])
register("ultimate", lambda: Game(
    "ultimate", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe, state_size=92,
    players=2, actions=81, shape=(5, 9, 9), max_length=81, cells=places))
