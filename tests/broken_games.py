"""Nim as a first game: right, broken, odd, and so that it ends or holds its process.

The module imports no PyTorch: processes that check these games import it."""
import os
import signal

import numpy as np
from numba import njit

from alphazero_nb.core.game import Game
from alphazero_nb.core.python_game import PythonGame


# A right game, Nim with ten stones, of which each game below changes something.
def start(state, seed): state[0] = 10


def mover(state): return -1 if state[0] <= 0 else state[1]


def legal(state, actions):
    n = min(3, state[0])
    for i in range(n): actions[i] = i
    return n


def play(state, action):
    state[0] -= action + 1
    state[1] = 1 - state[1]


def returns(state, out):
    out[state[1]] = -1
    out[1 - state[1]] = 1


def observe(state, planes): planes[state[0]] = 1


def nim(**changes):
    right = dict(start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                 state_size=2, players=2, actions=3, shape=(11,), max_length=10)
    return Game(**{"name": "nim", **right, **changes})


class Heap:
    "The same in Python."
    def __init__(self, seed): self.heap, self.seat = 10, 0
    def mover(self): return self.seat if self.heap else -1
    def legal(self): return range(min(3, self.heap))
    def returns(self): return [-1, 1] if self.seat == 0 else [1, -1]
    def observe(self): return np.eye(11, dtype=np.int8)[self.heap]

    def play(self, action):
        self.heap -= action + 1
        self.seat = 1 - self.seat


def heap(outcomes=0, **methods):
    return PythonGame("heap", type("Changed", (Heap,), methods), players=2, actions=3, shape=(11,), max_length=10,
                      outcomes=outcomes)


# What breaks the contract

@njit
def far(planes, place): planes[place + 4000] = 1


def observe_far(state, planes): far(planes, state[0])


def beside(planes, place): planes[place + 4000] = 1


beside_itself = njit(beside)


@njit
def through(planes, place): beside_itself(planes, place)


def observe_through(state, planes): through(planes, state[0])


def returns_nothing_real(state, out): out[:] = np.nan


def returns_points(state, out): out[state[1]], out[1 - state[1]] = -5, 5


def seats_from_one(state): return -1 if state[0] <= 0 else state[1] + 1


def legal_none(state, actions): return 0


def start_over(state, seed): state[0] = 0


def start_sometimes_over(state, seed): state[0] = 0 if seed == 77 else 10


def start_with_chance(state, seed): state[0], state[1] = 10, -2


def no_chance(state, probabilities): probabilities[0] = 1


def roll(state, action):
    if state[1] == -2: state[1] = 0
    else:
        state[0] -= action + 1
        state[1] = 1 - state[1]


SEATS = "it must be −1 or a seat below 2, not 2; seats are counted from 0"
BROKEN = {
    "an index of a helper": (lambda: nim(observe=observe_far), "observe", "index is out of bounds"),
    "an index of a helper's helper": (lambda: nim(observe=observe_through), "observe", "index is out of bounds"),
    "NaN": (lambda: nim(returns=returns_nothing_real), "returns", "results must lie in [−1, 1], not [nan, nan]"),
    "NaN in Python": (lambda: heap(returns=lambda self: [np.nan] * 2), "returns", "results must lie in [−1, 1], not [nan, nan]"),
    "five points": (lambda: nim(returns=returns_points), "returns", "results must lie in [−1, 1], not ["),
    "seats from 1": (lambda: nim(mover=seats_from_one), "mover", SEATS),
    "seats from 1 in Python": (lambda: heap(mover=lambda self: self.seat + 1 if self.heap else -1), "mover", SEATS),
    "nothing is legal": (lambda: nim(legal=legal_none), "legal", "there must be 1 to 3 actions, not 0"),
    "over at the start": (lambda: nim(start=start_over), "start", "the game must not be over at its start"),
    "over at some starts": (lambda: nim(start=start_sometimes_over), "start", "the game must not be over at its start"),
    "over at the start in Python": (lambda: heap(mover=lambda self: -1), "start", "the game must not be over at its start"),
    "chance first": (lambda: nim(start=start_with_chance, play=roll, chance=no_chance, outcomes=1), "start", "chance must not move first"),
    "chance first in Python": (lambda: heap(1, mover=lambda self: -2, chance=lambda self: [(0, 1.0)]), "start", "chance must not move first"),
}


# What cannot be compiled

def legal_without_return(state, actions):
    for i in range(min(3, state[0])): actions[i] = i


def mover_without_return(state):
    if state[0] > 0: return state[1]


def observe_with_text(state, planes): planes["a"] = 1


def observe_that_answers(state, planes): return 3


@njit
def helper_without_name(state): return state[0] + stones_that_nothing_defines   # noqa: F821


def play_with_helper(state, action): state[0] = helper_without_name(state)


# What only looks like a mistake

def play_alone(state, action): state[0] -= action + 1


def play_of_three(state, action):
    state[0] -= action + 1
    state[1] = (state[1] + 1) % 3


def returns_two_winners(state, out): out[:] = 1   # All of them


def returns_as_it_likes(state, out): out[state[1]] = -1 if state[1] else 1


def legal_greedy(state, actions):
    for i in range(3): actions[i] = i
    return 3


def mover_beyond(state): return -1 if state[0] < -1 else state[1]


def with_last(state, planes): planes[state[-2]] = 1


def observe_plane(state, planes): planes.reshape(1, 11)[0, state[0]] = 1


@njit
def mark(planes, place): planes[place] = 1


def observe_by_helper(state, planes): mark(planes, state[0])


WARNINGS = {
    "one side moves": (lambda: nim(play=play_alone), ["seat 1 never moves"]),
    "one side moves in Python": (lambda: heap(mover=lambda self: 0 if self.heap else -1), ["seat 1 never moves"]),
    "three winners": (lambda: nim(players=3, play=play_of_three, returns=returns_two_winners), ["all players win in 20 of 20 games"]),
    "too many stones": (lambda: nim(legal=legal_greedy), ["state[0] falls to −2 at the end of a game"]),
    "index below 0": (lambda: nim(legal=legal_greedy, mover=mover_beyond), ["(observe) can be below 0"]),
    "one of two": (lambda: nim(legal=legal_greedy, mover=mover_beyond, observe=observe_plane), ["(observe_plane) can be below 0"]),
    "of a helper": (lambda: nim(legal=legal_greedy, mover=mover_beyond, observe=observe_by_helper), ["(mark) can be below 0"]),
    "always below 0": (lambda: nim(observe=with_last), []),
}


# What ends or holds a process

def observe_endless(state, planes):
    while state[0] == 9 or state[0] == 8 or state[0] == 7: planes[0] = 1


@njit
def deep(number):
    if number < 0: return 0
    return 1 + deep(number + 1) % 7


def observe_deep(state, planes):
    if state[0] < 10: planes[0] = deep(state[0])


def crash(self):
    if self.heap < 10: os.kill(os.getpid(), signal.SIGSEGV)
    return Heap.observe(self)


def leave(self): os._exit(3)


def wait(self):
    while True: pass


CRASHES = {
    "a loop without an end": (lambda: nim(observe=observe_endless), r"nim: observe does not return within 0.2 s after moves \[\d\]"),
    "a loop in Python": (lambda: heap(legal=wait), r"heap: legal does not return within 0.2 s after moves \[\]"),
    "calls without an end": (lambda: nim(observe=observe_deep), r"nim: observe ends its process \(signal \d+.*\) after moves \[\d\]"),
    "a crash": (lambda: heap(observe=crash), r"heap: observe ends its process \(signal 11, SIGSEGV\) after moves \[\d\]"),
    "an exit": (lambda: heap(returns=leave), r"heap: returns ends its process \(exit code 3\) after moves \[\d, .*\]"),
}
