"""Positions as pictures: every game's board against its rules, games of one's own, marks, and what a picture says."""
import importlib.util
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.ui.board import (Board, Marks, Square, Step, board_svg, find_drawing, has_piece_planes, last_places, seat_color, square_name,
                                   letters_svg, next_click, register_drawing, stone_board, turn_board, visit_marks)
from alphazero_nb.ui import board as board_module
from alphazero_nb.ui.svg import svg_image

GAMES = ["tictactoe", "connect4", "gomoku(size=5)", "dots(rows=2,cols=3)", "othello(size=6)"]
if importlib.util.find_spec("pyspiel"): GAMES += [f"openspiel(game={word})" for word in ("tic_tac_toe", "connect_four", "othello")]


def random_states(game, seed=0):
    "The states and actions of a random game."
    rng, states, actions = np.random.default_rng(seed), [game.new(seed)], []
    while not game.over(states[-1]):
        actions.append(int(rng.choice(game.legal_actions(states[-1]))))
        states.append(game.play(states[-1], actions[-1]))
    return states, actions


@pytest.mark.parametrize("name", GAMES)
def test_a_board_can_be_clicked_wherever_a_move_is_legal(name):
    game = get_game(name)
    draw = find_drawing(game)
    for seed in range(3):
        states, actions = random_states(game, seed)
        for ply, state in enumerate(states):
            board = draw(states[:ply + 1], actions[:ply])
            ElementTree.fromstring(board_svg(board))
            assert len(board.squares) == len(board.heights) * len(board.widths)
            aims = board.aims()
            for action in game.legal_actions(state):
                if action not in aims: assert "othello" in name and game.action_name(action) == "pass"
                else: assert board.squares[aims[action]].seat < 0 and not board.squares[aims[action]].sign
            if ply:
                before = draw(states[:ply], actions[:ply - 1])
                where = before.aims().get(actions[ply - 1])
                if where is not None: assert last_places(before, board, actions[ply - 1]) == {where}


def test_columns_take_clicks_from_top_to_bottom():
    board = find_drawing(get_game("connect4"))([get_game("connect4").state_after([3, 3])], [3, 3])
    assert {place % 7 for place, square in enumerate(board.squares) if square.action == 3} == {3}
    assert board.aims()[3] == 3 * 7 + 3 and board.aims()[0] == 5 * 7


# Moves from square to square -------------------------------------------------------------------

CHESS = ["chess", "chess(fen=r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1)"]


@pytest.mark.parametrize("name", CHESS)
def test_a_board_of_chess_is_that_of_python_chess(name):
    "Pieces, steps with their promotions, checks, and the squares of the last move."
    chess = pytest.importorskip("chess")
    game, promoted, checks = get_game(name), 0, 0
    draw = find_drawing(game)
    def place(square): return 8 * (7 - chess.square_rank(square)) + chess.square_file(square)
    for seed in range(4):
        states, actions = random_states(game, seed)
        theirs = chess.Board(name[10:-1]) if "fen" in name else chess.Board()
        for ply, state in enumerate(states[:60]):
            board = draw(states[:ply + 1], actions[:ply])
            ElementTree.fromstring(board_svg(board))
            pieces = {at: (square.seat, square.sign) for at, square in enumerate(board.squares) if square.seat >= 0}
            assert pieces == {place(at): (int(not piece.color), piece.symbol().upper()) for at, piece in theirs.piece_map().items()}
            checked = {place(theirs.king(theirs.turn))} if theirs.is_check() else set()
            assert {at for at, square in enumerate(board.squares) if square.alert} == checked
            if game.over(state): break
            word = {None: "", chess.QUEEN: "queen", chess.ROOK: "rook", chess.BISHOP: "bishop", chess.KNIGHT: "knight"}
            steps = {(step.start, step.to, step.word): step.action for step in board.steps}
            legal = {(place(move.from_square), place(move.to_square), word[move.promotion]): move for move in theirs.legal_moves}
            assert steps.keys() == legal.keys() and sorted(steps.values()) == game.legal_actions(state)
            if ply == len(actions): break
            step = next(step for step in board.steps if step.action == actions[ply])
            after = draw(states[:ply + 2], actions[:ply + 1])
            assert last_places(board, after, actions[ply]) == {step.start, step.to}
            move = legal[step.start, step.to, step.word]
            promoted, checks = promoted + bool(step.word), checks + bool(checked)
            theirs.push(move)
    assert checks and (name == "chess" or promoted)


def test_the_smallest_board_of_chess():
    game = get_game("chess(variant=gardner)")
    board = find_drawing(game)([game.new()], [])
    assert "".join(square.sign for square in board.squares[-10:]) == "PPPPPRNBQK" and board.rows == (5, 4, 3, 2, 1)
    assert {square.seat for square in board.squares[:10]} == {1} and len(board.steps) == len(game.legal_actions(game.new()))
    dark, = {shape.get("fill") for shape in shapes(board_svg(board), "rect")[1:26:2]} - {None}   # a1 and e1 are dark
    assert shapes(board_svg(board), "rect")[21].get("fill") == dark != shapes(board_svg(board), "rect")[22].get("fill")


def test_a_turned_board_is_the_same_board():
    board = find_drawing(get_game("chess"))([get_game("chess").new()], [])
    turned = turn_board(board)
    assert turn_board(turned) == board and turned.rows == tuple(range(1, 9)) and turned.columns == tuple("hgfedcba")
    ends = {step.action: (63 - step.start, 63 - step.to) for step in board.steps}
    assert {step.action: (step.start, step.to) for step in turned.steps} == ends
    assert all(turned.squares[63 - place] == square for place, square in enumerate(board.squares))
    fills = [[rect.get("fill") for rect in shapes(board_svg(one), "rect")[1:65]] for one in (board, turned)]
    assert fills[0] == fills[1] and fills[0][56] == fills[0][7]   # a1 and h8 have one colour, on both sides


def test_two_clicks():
    steps = (Step(5, 0, 1), Step(6, 0, 2, "queen"), Step(7, 0, 2, "rook"), Step(8, 3, 1))
    board = Board("cells", (50,), (50,) * 5, tuple(Square(seat=place % 2) for place in range(5)), steps=steps)
    assert board.aims() == {5: 1, 6: 2, 7: 2, 8: 1}
    assert next_click(board, -1, 0) == (0, ()) and next_click(board, -1, 1) == (-1, ()) and next_click(board, -1, 4) == (-1, ())
    assert next_click(board, 0, 1) == (0, steps[:1]) and next_click(board, 0, 2) == (0, steps[1:3])
    assert next_click(board, 0, 0) == (-1, ()) and next_click(board, 0, 3) == (3, ()) and next_click(board, 3, 2) == (-1, ())


def test_visits_of_steps_are_arrows_and_the_choice_is_marked():
    steps = (Step(5, 0, 1), Step(6, 0, 2, "queen"), Step(7, 0, 2, "rook"))
    board = Board("chess", (50,), (50,) * 3, (Square(seat=0, sign="P"), Square(), Square(seat=1, sign="K", alert=True)), steps=steps)
    places, arrows = visit_marks(board, {5: 0.5, 6: 0.25, 7: 0.125, 9: 0.125})
    assert places == {} and arrows == {(0, 1): 0.5, (0, 2): 0.375}
    assert visit_marks(stone_board([[0, -1]]), {1: 0.5, 7: 0.5}) == ({1: 0.5}, {})
    marks = Marks(frozenset({1, 2}), best=1, best_start=0, chosen=0, arrows=arrows)
    plain, marked = board_svg(board), board_svg(board, marks)
    assert len(shapes(plain, "polygon")) == 0 and len(shapes(marked, "polygon")) == 3
    assert {"50", "38"} <= {text.text for text in shapes(marked, "text")}
    assert len(shapes(marked, "rect")) == len(shapes(plain, "rect")) + 2   # behind the chosen piece
    ElementTree.fromstring(board_svg(board, Marks(arrows={(1, 1): 1.0})))   # a step that stays where it is
    def points(arrow): return [tuple(map(float, point.split(","))) for point in arrow.get("points").split()]
    widths = [abs(points(arrow)[0][1] - points(arrow)[-1][1]) for arrow in shapes(marked, "polygon")[:2]]
    assert widths[0] > widths[1]
    for arrow, to in zip(shapes(marked, "polygon"), (1, 2)):   # the tip is on the target, the tail on the start
        xs = [x for x, _ in points(arrow)]
        assert 10 < min(xs) < 60 and 10 + 50 * to < max(xs) < 60 + 50 * to


# Games of one's own ----------------------------------------------------------------------------

class Placed:
    "Two players put stones on four places; `flip` shows the planes the wrong way round."
    flip = False
    def __init__(self, seed): self.cells, self.seat = [-1] * 4, 0
    def mover(self): return self.seat if -1 in self.cells else -1
    def legal(self): return [cell for cell, owner in enumerate(self.cells) if owner < 0]
    def returns(self): return [0.0, 0.0]
    def play(self, action): self.cells[action], self.seat = self.seat, 1 - self.seat

    def observe(self):
        planes = np.array([[owner == seat for owner in self.cells] for seat in (self.seat, 1 - self.seat)])
        return (planes[::-1] if self.flip else planes).reshape(2, 2, 2).astype(np.int8)


class Flipped(Placed): flip = True


class Dropped(Placed):
    "Two columns of two; a stone falls to the bottom of its column, which is the second row."
    def legal(self): return [column for column in (0, 1) if self.cells[column] < 0]
    def play(self, action): super().play(action + 2 if self.cells[action + 2] < 0 else action)


class Crowded(Placed):
    "Both planes hold every stone."
    def observe(self): return np.array([[owner >= 0 for owner in self.cells]] * 2).reshape(2, 2, 2).astype(np.int8)


class Passing(Placed):
    "Action 4 passes, which puts nothing anywhere."
    def legal(self): return [*super().legal(), 4]
    def play(self, action): super().play(action) if action < 4 else setattr(self, "seat", 1 - self.seat)


def own(make, actions=4, **options):
    return PythonGame("own", make, players=2, actions=actions, shape=(2, 2, 2), max_length=4, **options)


@pytest.mark.parametrize("make, actions", [(Placed, 4), (Dropped, 2)])
@pytest.mark.parametrize("cells", [True, False])
def test_planes_of_pieces_are_a_board(make, actions, cells):
    game = own(make, actions, **(dict(cells=np.arange(4)) if cells and actions == 4 else {}))
    assert has_piece_planes(game)
    for seed in range(4):
        states, moves = random_states(game, seed)
        for ply in range(len(states)):
            board = find_drawing(game)(states[:ply + 1], moves[:ply])
            assert [square.seat for square in board.squares] == game.position(states[ply]).cells   # also at the end
            for action in game.legal_actions(states[ply]):
                after = game.position(game.play(states[ply], action)).cells
                place, = (place for place in range(4) if after[place] != board.squares[place].seat)
                assert board.aims()[action] == place
            assert set(board.aims()) == set(game.legal_actions(states[ply]))


@pytest.mark.parametrize("make, actions", [(Flipped, 4), (Crowded, 4), (Passing, 5)])
def test_other_planes_are_no_board(make, actions):
    game = own(make, actions)
    assert not has_piece_planes(game) and find_drawing(game)([game.new()], []) is None


def test_numbers_that_are_no_planes_are_no_board():
    numbers = type("Numbers", (Placed,), dict(observe=lambda self: [self.seat]))
    assert not has_piece_planes(PythonGame("own", numbers, players=2, actions=4, shape=(1,), max_length=4))


def test_rules_that_fail_are_no_board():
    class Broken(Placed):
        def observe(self): return 1 / 0
    assert not has_piece_planes(own(Broken))


def test_compiled_rules_under_another_name_are_drawn_alike():
    rules = get_game("tictactoe")
    functions = {key: rules.functions[key] for key in ("start", "mover", "legal", "play", "returns", "observe")}
    mine = Game("noughts", **functions, state_size=12, players=2, actions=9, shape=(2, 3, 3), max_length=9)
    states, moves = random_states(mine, 3)
    for ply in range(len(states)):
        known, guessed = (find_drawing(game)(states[:ply + 1], moves[:ply]) for game in (rules, mine))
        assert [square.seat for square in known.squares] == [square.seat for square in guessed.squares]
        assert guessed.aims() == {action: action for action in mine.legal_actions(states[ply])}


def test_captured_stones_do_not_hide_the_move():
    pytest.importorskip("pyspiel")
    game, moves = get_game("openspiel(game=othello)"), []
    for _ in range(10): moves.append(game.legal_actions(game.state_after(moves))[0])
    before, after = (find_drawing(game)([game.state_after(moves[:k])], moves[:k]) for k in (9, 10))
    changed = [place for place, (a, b) in enumerate(zip(before.squares, after.squares)) if a.seat != b.seat]
    assert len(changed) > 1 and last_places(before, after, moves[-1]) == {moves[-1]}


def test_a_drawing_is_found_by_the_full_name_first(monkeypatch):
    from alphazero_nb.ui import board as room
    monkeypatch.setattr(room, "_drawings", dict(room._drawings))
    register_drawing("gomoku(size=5)", lambda game, state: stone_board(np.zeros((1, 2))))
    register_drawing("gomoku", lambda game, state: stone_board(np.zeros((1, 3))))
    sizes = [len(find_drawing(game)([game.new()], []).squares) for game in map(get_game, ("gomoku(size=5)", "gomoku(size=6)"))]
    assert sizes == [2, 3]


# What a picture says ---------------------------------------------------------------------------

def shapes(svg, tag): return [element for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}" + tag)]


@pytest.mark.parametrize("look", ["cells", "holes", "lines"])
def test_a_picture_has_a_disc_for_every_piece_and_a_mark_for_every_mark(look):
    owners = [[0, 1, -1], [-1, 0, 1]]
    bare = len(shapes(board_svg(stone_board(np.full((2, 3), -1), look=look)), "circle"))
    svg = board_svg(stone_board(owners, look=look))
    pieces = [circle for circle in shapes(svg, "circle")[bare:] if circle.get("fill") != "none"]
    assert len(pieces) == 4 and len({piece.get("fill") for piece in pieces}) == 2
    middle = {(piece.get("cx"), piece.get("cy")) for piece in pieces}
    assert len(middle) == 4
    marked = board_svg(stone_board(owners, look=look), Marks(frozenset({2, 3}), frozenset({0}), {}, best=3))
    assert len(shapes(marked, "circle")) == len(shapes(svg, "circle")) + 4   # two legal, the last, the best


def test_the_area_of_a_disc_is_the_share():
    board, r = stone_board(np.full((1, 2), -1)), {}
    for share in (0.16, 0.64):
        disc, = (c for c in shapes(board_svg(board, Marks(shares={0: share})), "circle") if c.get("fill-opacity") == "0.3")
        r[share] = float(disc.get("r"))
    assert r[0.64] == pytest.approx(2 * r[0.16], rel=0.01)
    words = [text.text for text in shapes(board_svg(board, Marks(shares={0: 0.64, 1: 0.04})), "text")]
    assert words == ["64"]   # below five in a hundred there is a disc and no number


def test_letters_can_be_anything():
    svg = letters_svg("a < b & c\x00\x1b[0m\n\n")
    assert "a < b & c" in "".join(ElementTree.fromstring(svg).itertext())
    board = stone_board([[0, 1]], look="cells", rows=["<"], columns=["&", ">"])
    assert "".join(ElementTree.fromstring(board_svg(board)).itertext()) == "<&>"
    signs = Board("cells", (50,), (50,) * 2, tuple(Square(k, seat=k, sign="<K"[k]) for k in range(2)))
    assert "".join(ElementTree.fromstring(board_svg(signs)).itertext()) == "<K"


def test_a_picture_that_may_shrink_keeps_its_shape():
    assert "max-width:none" in svg_image("<svg/>") and "max-width:100%;height:auto" in svg_image("<svg/>", shrink=True)


# Reading ----------------------------------------------------------------------------------------

def contrast(*colors):
    "The contrast of two colours, as WCAG 2.1 defines it."
    def light(color):
        parts = [int(color[k:k + 2], 16) / 255 for k in (1, 3, 5)]
        parts = [part / 12.92 if part <= .04045 else ((part + .055) / 1.055) ** 2.4 for part in parts]
        return sum(part * weight for part, weight in zip(parts, (.2126, .7152, .0722)))
    low, high = sorted(map(light, colors))
    return (high + .05) / (low + .05)


@pytest.mark.parametrize("name", ["connect4", "gomoku(size=9)", "othello(size=6)", "chess"])
def test_labels_of_rows_and_columns_can_be_read(name):
    game = get_game(name)
    board = find_drawing(game)([game.new_match()], [])
    labels = ElementTree.fromstring(board_svg(board)).findall("{*}text")
    assert len(labels) == len(board.rows) + len(board.columns)
    for label in labels:
        assert float(label.get("font-size")) >= 12 and contrast(label.get("fill"), board_module._STYLES[board.look][0]) >= 4.5


def test_the_numbers_of_2048_can_be_read():
    for tile, color in enumerate(board_module.TILES):
        text = ElementTree.fromstring(f"<g>{board_module.piece_svg('tiles', tile, 0, 0, 84, '2')}</g>").find("text")
        assert contrast(text.get("fill"), color) >= 3, "large bold text"


@pytest.mark.parametrize("size", [2, 5, 11])
def test_neighbours_on_a_board_of_hex_lie_side_by_side(size):
    "The rules say which cells are neighbours; on the picture their centres are one hexagon apart, and no others are that near."
    from alphazero_nb.games.hex import beside
    game = get_game(f"hex(size={size})")
    board, state = find_drawing(game)([game.new()], []), game.new()
    centres = [(x + w / 2, y + h / 2) for x, y, w, h in board.areas]
    side = board.areas[0][2]
    for cell in range(size * size):
        near = {other for other in range(size * size) if other != cell and np.hypot(*np.subtract(centres[cell], centres[other])) < 1.1 * side}
        assert near == {beside(state, cell, way) for way in range(6)} - {-1}
    assert all(0 <= x and 0 <= y and x + w <= sum(board.widths) and y + h <= sum(board.heights) for x, y, w, h in board.areas)


def test_the_sides_of_a_board_of_hex_have_the_colours_of_those_who_connect_them():
    game = get_game("hex(size=4)")
    svg = board_svg(find_drawing(game)([game.new()], []))
    lines = re.findall(r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"[^>]*stroke="(#\w+)"[^>]*stroke-width="4', svg)
    def middles(color): return [((float(a) + float(c)) / 2, (float(b) + float(d)) / 2) for a, b, c, d, one in lines if one == color]
    first, second = middles(seat_color("hexes", 0)), middles(seat_color("hexes", 1))
    ys = [y for _, y in first]
    assert len(first) == 16 and len(second) == 14 and len({y > sum((min(ys), max(ys))) / 2 for y in ys}) == 2
    assert all(y < min(ys) + 20 or y > max(ys) - 20 for y in ys), "seat 0: above and below"
    assert square_name(find_drawing(game)([game.new()], []), 5, ("yours", "theirs")) == "b2, empty"
