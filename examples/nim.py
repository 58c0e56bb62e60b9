"""Nim: take one, two or three stones from a heap; whoever takes the last one wins.

    alphazero-nb train "nim(stones=15)" --rules examples/nim.py --preset tiny --minutes 1 --folder runs/nim-15

A heap whose stones are a multiple of four is lost for the player to move. All others are won.
"""
from alphazero_nb.all import Game, register

HEAP, SEAT, STONES = range(3)   # Numbers of the row that is a position


def start_with(stones):
    def start(state, seed): state[HEAP] = state[STONES] = stones
    return start


def mover(state): return state[SEAT] if state[HEAP] > 0 else -1


def legal(state, actions):
    count = min(3, state[HEAP])
    for k in range(count): actions[k] = k   # Action k takes k + 1 stones
    return count


def play(state, action):
    state[HEAP] -= action + 1
    state[SEAT] = 1 - state[SEAT]


def returns(state, out): out[1 - state[SEAT]], out[state[SEAT]] = 1, -1   # The winner is not to move


def observe(state, planes): planes[state[HEAP]] = 1


def text(state): return f"{state[HEAP]} stones: {'o' * int(state[HEAP])}"


def nim(stones: int = 15) -> Game:
    if stones not in range(1, 101): raise ValueError(f"nim: stones is {stones!r}; choose 1 to 100.")
    return Game(f"nim(stones={stones})", start=start_with(stones), mover=mover, legal=legal, play=play, returns=returns,
                observe=observe, text=text, state_size=3, players=2, actions=3, shape=(stones + 1,), max_length=stones,
                action_names=lambda action: f"take {action + 1}")


register("nim", nim)
