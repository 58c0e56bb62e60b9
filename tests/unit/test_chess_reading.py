"What chess programs and people write, read as python-chess reads it: games in PGN, positions in FEN, moves in UCI."
import io

import pytest

from alphazero_nb.core.registry import get_game
from alphazero_nb.games.chess_board import FENS
from alphazero_nb.games.chess_text import from_fen, move_to_uci, read_pgn, san_to_action, to_fen, uci_to_action, without_past, write_pgn

chess = pytest.importorskip("chess", reason="python-chess is the reference of these tests")
import chess.pgn

SPANISH = "e2e4 e7e5 g1f3 b8c6 f1b5"
CASTLES = SPANISH + " a7a6 b5a4 g8f6 e1g1"
PASSANT = "e2e4 a7a6 e4e5 d7d5 e5d6"
PROMOTES = "8/P6k/8/8/8/8/8/K7 w - - 0 1"
BOTH = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"
KNIGHTS = "g1f3 g8f6 f3g1 f6g8"


def with_fen(fen, text): return f'[SetUp "1"]\n[FEN "{fen}"]\n\n{text}'


# Each text with its moves. python-chess reads them all as they are meant.
GAMES = {
    "1. e4 e5 2. Nf3 Nc6 3. Bb5 *": SPANISH, "1.e4 e5 2.Nf3 Nc6 3.Bb5 *": SPANISH, "e4 e5 Nf3 Nc6 Bb5": SPANISH,
    "1 e4 e5 2 Nf3 Nc6 3 Bb5": SPANISH, "1) e4 e5 2) Nf3 Nc6 3) Bb5": SPANISH, "1. e4, e5 2. Nf3, Nc6 3. Bb5": SPANISH,
    "1. e4 e5\n2. Nf3 Nc6\n3. Bb5": SPANISH, "1. e4 e5\r2. Nf3 Nc6\r3. Bb5": SPANISH,
    "1. e4 e5\r\n2. Nf3 Nc6\r\n3. Bb5\r\n": SPANISH, "\ufeff1. e4 e5 2. Nf3 Nc6 3. Bb5": SPANISH,
    "\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5": SPANISH, "1.\te4\te5\t2.\tNf3\tNc6\t3.\tBb5": SPANISH, "1.\u00a0e4 e5 2.\u00a0Nf3 Nc6 3.\u00a0Bb5": SPANISH,
    "1. e4 1... e5 2. Nf3 2... Nc6 3. Bb5": SPANISH, "1.e4 1...e5 2.Nf3 2...Nc6 3.Bb5": SPANISH, "1. e4 1. ... e5 2. Nf3 2. ... Nc6 3. Bb5": SPANISH,
    "1. e4 … e5 2. Nf3 … Nc6 3. Bb5": SPANISH, "1 . e4 e5 2 . Nf3 Nc6 3 . Bb5": SPANISH, "1.e4 e52.Nf3 Nc63.Bb5": SPANISH,
    "1. e4! e5? 2. Nf3!! Nc6?? 3. Bb5!?": SPANISH, "1. e4 ! e5 ?! 2. Nf3 !? Nc6 3. Bb5": SPANISH, "1. e4 $1 e5 $2 2. Nf3 $146 Nc6$6 3. Bb5": SPANISH,
    "1. e4 +- e5 -+ 2. Nf3 +/- Nc6 = 3. Bb5 +/=": SPANISH, "1. e4± e5∓ 2. Nf3⩲ Nc6□ 3. Bb5": SPANISH, "1. e4 e5 2. Nf3 Nc6 N 3. Bb5 D": SPANISH,
    "1. e4 {good} e5 2. Nf3 {more {nested} words} Nc6 3. Bb5": SPANISH, "1. e4 {} e5 { } 2. Nf3 Nc6{c}3. Bb5": SPANISH,
    "1. e4 {a comment\nover\ntwo lines} e5 2. Nf3 Nc6 3. Bb5": SPANISH, "1. e4 {a comment with\n\nan empty line} e5 2. Nf3 Nc6 3. Bb5": SPANISH,
    "1. e4 {a comment\n% with a sign} e5 2. Nf3 Nc6 3. Bb5": SPANISH, "1. e4 {;} e5 2. Nf3 Nc6 {)} 3. Bb5 {(}": SPANISH,
    "1. e4 {[%clk 1:29:58]} 1... e5 {[%clk 1:29:57]} 2. Nf3 {[%emt 0:00:03]} Nc6 3. Bb5": SPANISH,
    "1. e4 { [%eval 0.23] } e5 { [%csl Ge4][%cal Re4e5] } 2. Nf3 Nc6 3. Bb5 { (0.30 → 0.10) Inaccuracy. }": SPANISH,
    "{before} 1. e4 e5 2. Nf3 Nc6 3. Bb5 {after} 1-0": SPANISH, "1. e4 ; a rest of the line e5 d5\ne5 2. Nf3 Nc6 3. Bb5": SPANISH,
    "1. e4 e5 2. Nf3 Nc6 3. Bb5!; a6 is usual": SPANISH, "1. e4!; d5 d6\ne5 2. Nf3 Nc6 3. Bb5": SPANISH,
    "1. e4 ; {open\ne5 2. Nf3 Nc6 3. Bb5": SPANISH, "% an escape\n1. e4 e5\n% d4 d5\n2. Nf3 Nc6 3. Bb5": SPANISH, "; a line\n1. e4 e5 2. Nf3 Nc6 3. Bb5": SPANISH,
    "1. e4 (1. d4 d5) e5 2. Nf3 Nc6 3. Bb5": SPANISH, "1. e4 (1. d4 (1. c4 {deep}) d5) 1... e5 (1... c5 2. Nf3 (2. c3)) 2. Nf3 Nc6 3. Bb5": SPANISH,
    "1. e4 e5 (1... -- 2. d4) 2. Nf3 Nc6 3. Bb5": SPANISH, "1. e4 e5 (1... d5 {:)} ) 2. Nf3 Nc6 (2... Nf6) (2... d6) 3. Bb5": SPANISH,
    "1. e4 e5 2. Nf3 Nc6 3. Bb5 (3. Bc4) (3. d4) 1/2-1/2": SPANISH,
    "1. e4 e5 ) 2. Nf3 Nc6 3. Bb5": SPANISH, "1. e4 e5 } 2. Nf3 Nc6 3. Bb5": SPANISH,
    "1. e2-e4 e7-e5 2. Ng1-f3 Nb8-c6 3. Bf1-b5": SPANISH, "1. e2e4 e7e5 2. Ng1f3 Nb8c6 3. Bf1b5": SPANISH, "e2e4 e7e5 g1f3 b8c6 f1b5": SPANISH,
    "1. Pe4 Pe5 2. Nf3 Nc6 3. Bb5": SPANISH, "1. e4 e5 2. Ngf3 Nbc6 3. Bfb5": SPANISH, "1. e4 e5 2. N1f3 N8c6 3. B1b5": SPANISH,
    '[Event "a"]\n[White "A"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH, '[Event "a"]\n[White "A"]\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH,
    '[Event "a"]\n\n[White "A"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH, '[Event  "a" ]\n[White "A"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH,
    '[Event "the "old" open"]\n[White "A"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH, '[Event a]\n[White "A"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH,
    '[Event "a]\n[White "A"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH, '[]\n[White "A"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH,
    '[White-Title "GM"]\n[Time+Control "60"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH, '[Event ""]\n[Site "[x]"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH,
    '[Event "a"] ; words\n[White "A"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH,
    '[Event "a"] {more words} ; and more\n[White "A"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH,
    '[Event "a"]\n; a line\n[White "A"]\n% another\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5': SPANISH, '\ufeff[Event "a"]\r\n\r\n1. e4 e5 2. Nf3 Nc6 3. Bb5 *\r\n': SPANISH,
    '[Event "a"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5\n\n[Event "b"]\n\n1. d4 d5 *': SPANISH, "1. e4 e5 2. Nf3 Nc6 3. Bb5\n\n1. d4 d5 *": SPANISH,
    "1. e4 e5 2. Nf3 Nc6 3. Bb5 1-0\n\n1. d4 d5 *": SPANISH, "1. e4 e5 2. Nf3 Nc6 3. Bb5\n \n1. d4": SPANISH, '[Result "0-1"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5 1-0': SPANISH,
    "1. e4 e5 2. Nf3 Nc6 3. Bb5\n\nA paragraph about this game, with e4.": SPANISH, "1. e4 e5 2. Nf3 Nc6 3. Bb5 White resigns": SPANISH,
    "1. e4 e5 2. Nf3 Nc6 3. Bb5 ½-½": SPANISH, "1. e4 e5 2. Nf3 Nc6 3. Bb5 1/2": SPANISH, "1. e4 e5 2. Nf3 Nc6 3. Bb5 1:0": SPANISH, "1. e4 e5 2. Nf3 Nc6 3. Bb51-0": SPANISH,
    "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O": CASTLES, "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. 0-0!": CASTLES,
    "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. e1g1": CASTLES, "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. e1h1": CASTLES,
    "1. e4 a6 2. e5 d5 3. exd6": PASSANT, "1. e4 a6 2. e5 d5 3. exd6 e.p.": PASSANT, "1. e4 a6 2. e5 d5 3. exd6e.p.": PASSANT,
    "1. e4 a6 2. e5 d5 3. exd6 ep": PASSANT, "1. e4 a6 2. e5 d5 3. exd6ep!": PASSANT, "1. e4 a6 2. e5 d5 3. ed6": PASSANT, "1. e4 a6 2. e5 d5 3. e5xd6": PASSANT,
    "1. e4 a6 2. e5 d5 3. e5-d6": PASSANT, "1. f3 e5 2. g4 Qh4#": "f2f3 e7e5 g2g4 d8h4", "1. f3 e5 2. g4 Qh4 mate 0-1": "f2f3 e7e5 g2g4 d8h4",
    "1. f3 e5 2. g4 Qh4++ 0-1": "f2f3 e7e5 g2g4 d8h4", "1. e4 e5 2. Bc4 Nc6 3. Bxf7 ch": "e2e4 e7e5 f1c4 b8c6 c4f7",
    "1. e4 e5 2. Bc4 Nc6 3. Bf7": "e2e4 e7e5 f1c4 b8c6 c4f7", "1. e4 e5 2. Bc4 Nc6 3. Bxf7+ Ke7 dbl.ch.": "e2e4 e7e5 f1c4 b8c6 c4f7 e8e7",
    with_fen(PROMOTES, "1. a8=Q"): "a7a8q", with_fen(PROMOTES, "1. a8Q"): "a7a8q", with_fen(PROMOTES, "1. a8=q"): "a7a8q", with_fen(PROMOTES, "1. a8n"): "a7a8n",
    with_fen(PROMOTES, "1. a7-a8=R Kg6"): "a7a8r h7g6", with_fen(PROMOTES, "1. a7a8q"): "a7a8q",
    with_fen(PROMOTES.replace(" w ", " b "), "1... Kg6 2. a8=B"): "h7g6 a7a8b", with_fen(PROMOTES.replace(" w ", " b "), "1. ... Kg6 2. a8=B"): "h7g6 a7a8b",
    with_fen(PROMOTES.replace(" w ", " b "), "Kg6 a8=B"): "h7g6 a7a8b", f'[FEN "{PROMOTES}"]\n\n1. a8=Q': "a7a8q", with_fen(PROMOTES[:-4], "1. a8=Q"): "a7a8q",
    with_fen(PROMOTES[:-2], "1. a8=Q"): "a7a8q", with_fen(PROMOTES.replace("w -", "w KQkq"), "1. a8=Q"): "a7a8q",
    with_fen(PROMOTES.replace("- -", "- e6"), "1. a8=Q"): "a7a8q", with_fen(PROMOTES.replace("0 1", "120 0"), "1. Kb1 Kg6 2. a8=Q"): "a1b1 h7g6 a7a8q",
    with_fen(BOTH, "1. O-O-O O-O"): "e1c1 e8g8", with_fen(BOTH, "1. 0-0-0! 0-0?"): "e1c1 e8g8", with_fen(BOTH, "1. O-O-O+ Ke7"): "e1c1 e8e7",
    "1. Nf3 Nf6 2. Ng1 Ng8 3. Nf3 Nf6 4. Ng1 Ng8 5. e4 e5": f"{KNIGHTS} {KNIGHTS} e2e4 e7e5",
    with_fen("4k3/8/8/8/8/8/3p4/4K3 w - - 0 1", "1. Kxd2 Kd7 2. Kd3 Kd6"): "e1d2 e8d7 d2d3 d7d6",
    with_fen("3k4/8/8/8/8/8/4R3/4K3 w - - 99 70", "1. Kf1 Kd7 2. Rd2+"): "e1f1 d8d7 e2d2",
    "*": "", '[Event "a"]\n\n*': "", '[Event "a"]\n\n{nothing was played} 1-0': "",
}


def theirs(text):
    "The moves that python-chess reads, None if it has a complaint."
    game = chess.pgn.read_game(io.StringIO(text))
    return None if game is None or game.errors else " ".join(move.uci() for move in game.mainline_moves())


def ours(game, text):
    headers, actions = read_pgn(game, text)
    state, moves = from_fen(game, headers.get("FEN", FENS[8])), []
    for action in actions:
        state = without_past(game, state)
        moves.append(move_to_uci(game, state, action))
        state = game.play(state, action)
    return " ".join(moves), headers, actions


@pytest.fixture(scope="module")
def game(): return get_game("chess")


@pytest.mark.parametrize("text", GAMES)
def test_a_game_is_read_as_python_chess_reads_it(game, text):
    assert theirs(text) == GAMES[text], "python-chess reads something else, so this text proves nothing"
    moves, headers, actions = ours(game, text)
    assert moves == GAMES[text]
    found = chess.pgn.read_game(io.StringIO(text)).headers
    assert found["Result"] in (headers.get("Result", "*"), "*") and all(
        found.get(key) == headers.get(key, "?") for key in ("White", "FEN") if key in found)
    again = write_pgn(game, actions, headers)
    assert ours(game, again)[0] == moves == theirs(again), again


# python-chess reads other moves here, or none. The texts have one meaning for a person.
ONLY_OURS = {
    "1. e4 e5 2. ♘f3 ♞c6 3. ♗\ufe0eb5": SPANISH, "1. e2–e4 e7–e5 2. Ng1–f3 Nb8–c6 3. Bf1–b5": SPANISH,
    "1. e4 (1. d4 1-0) e5 2. Nf3 Nc6 3. Bb5": SPANISH, "(1. d4) 1. e4 e5 2. Nf3 Nc6 3. Bb5": SPANISH,
    "1. e4 e5\n\n{Now the knight.}\n\n2. Nf3 Nc6\n; and\n\n(2... d6 (2... f6)) $12 ; the bishop\n3. Bb5 1-0": SPANISH,
    "1. e4\n\n1. ... e5 2. Nf3 Nc6 3. Bb5": SPANISH,
    "1. e4 e5\n\n2. Nf3 Nc6\n\n3. Bb5\n\n1/2-1/2": SPANISH, "1. e4\n\n1... e5\n2. Nf3 Nc6 3. Bb5": SPANISH,
    "1. e4 e5 2. Nf3 Nc6 3. Bb5 1-0 1. d4 d5": SPANISH, '1. e4 e5 2. Nf3 Nc6 3. Bb5\n[Event "b"]\n1. d4': SPANISH,
    "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. o-o": CASTLES, "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O–O": CASTLES,
    "1. e4 e5 2. Bc4 Nc6 3. B:f7+": "e2e4 e7e5 f1c4 b8c6 c4f7", with_fen(PROMOTES, "1. a8(Q) Kg6"): "a7a8q h7g6",
    with_fen(PROMOTES, "1. a8/R Kg6"): "a7a8r h7g6"}


@pytest.mark.parametrize("text", ONLY_OURS)
def test_a_game_with_one_meaning_is_read_although_python_chess_does_not(game, text):
    assert theirs(text) != ONLY_OURS[text] == ours(game, text)[0]


@pytest.mark.parametrize("text, words", {
    "1. e4 e5 2. Sf3 Nc6": "2. Sf3", "1. e4 e5 2. nf3 Nc6": "2. nf3", "1. e4 e5 2. Nf33": "2. Nf33", "1. e4 d5 2. ed": "2. ed", "1. e4 d5 2. exd": "2. exd",
    "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. OO": "4. OO", "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. 00": "4. 00",
    "1. P-K4 P-K4": "K4", "1. e4 -- 2. d4": "1... --", "1. e4 Z0": "1... Z0", "1. e4 0000": "1... 0000", "1. e4 @@@@": "1... @@@@", "1. e4 e5 2. Ke3": "2. Ke3",
    "1. d4 d5 2. Nf3 Nf6 3. Nd2": "more than one meaning", "1. Nf3 a6 2. d3 a5 3. Nd2": "more than one meaning", "1. e4 e5 2. Bx": "2. Bx", "1. O-O": "1. O-O",
    with_fen(PROMOTES, "1. a8"): "1. a8", with_fen(PROMOTES, "1. a8=K"): "1. a8", "1. e4 {no end": "comment", "1. e4 (1. d4": "variation", "": "no game",
    "nothing at all": "no game", '[FEN "8/8 w - - 0 1"]\n\n1. e4': "2 ranks", "1. f3 e5 2. g4 Qh4# 3. a3": "game is over"}.items())
def test_a_text_that_may_mean_another_move_is_refused(game, text, words):
    "Words are skipped only if they cannot be moves. python-chess skips some of these."
    with pytest.raises(ValueError, match=words) as error: read_pgn(game, text)
    assert "\n" not in str(error.value)


def test_the_words_of_the_next_game_do_not_belong_to_this_one(game):
    for text in ("1. e4 e5\n\n{Another game} 1. d4", "1. e4 e5\n\n" + "; word " * 60 + "\n1. d4"):
        assert len(read_pgn(game, text)[1]) == 2


def spellings(move, san):
    "Ways to write a move, right and wrong: with each part of SAN, or without it."
    name, piece = move.uci(), san[0] if san[0] in "NBRQK" else ""
    for before in (piece, "", "P"):
        for place in ("", name[0], name[1], name[:2]):
            for sign in ("", "x", "-"):
                for after in ("", "q", "=N", "=Q", "Q"): yield before + place + sign + name[2:4] + after


def test_every_spelling_that_python_chess_reads_is_read_the_same(game):
    fens = [FENS[8], BOTH, "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", "8/2p5/3p4/KP5r/1R2Pp1k/8/6P1/8 b - e3 0 1",
            "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N b - - 0 1", "6k1/8/8/2Q1Q3/8/2Q5/1K6/8 w - - 0 1", "4k3/8/8/2PpP3/8/8/8/4K3 w - d6 0 2"]
    read = 0
    for fen in fens:
        board, state = chess.Board(fen), from_fen(game, fen)
        texts = {text for move in board.legal_moves for text in spellings(move, board.san(move))}
        for text in sorted(texts):
            try: move = board.parse_san(text)
            except ValueError: continue
            assert move_to_uci(game, state, san_to_action(game, state, text)) == move.uci(), (fen, text)
            read += 1
    assert read > 1000


# Positions


CARELESS = ["r3k3/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "r3k2r/8/8/8/8/8/8/R3K2R b HAha - 3 9", "4k3/8/8/8/8/8/8/4K2R w KK - 0 1",
            "4k2r/8/8/8/8/8/8/3K3R w Kk - 0 1", "4k3/8/8/8/8/8/P7/4K3 w - - 0", "4k3/8/8/8/8/8/P7/4K3 w - -", "4k3/8/8/8/8/8/P7/4K3 w - - 7", "4k3/8/8/8/8/8/P7/4K3 b - - 0 0",
            "4k3/8/8/8/4P3/8/8/4K3 w - e3 0 1", "4k3/8/8/8/8/8/P7/4K3 w - e6 0 1", "4k3/8/8/8/4P3/8/4P3/4K3 b - e3 0 1", "4k3/8/8/8/3pP3/8/8/4K3 b - e3 0 1",
            "4k3/8/8/8/8/8/P7/4K3 b - a1 0 1", "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1", "  4k3/8/8/8/8/8/P7/4K3   w  -  -  0  1 "]


@pytest.mark.parametrize("fen", CARELESS)
def test_a_careless_fen_is_read_as_python_chess_reads_it(game, fen):
    board = chess.Board(fen)
    board.castling_rights = board.clean_castling_rights()
    assert to_fen(game, from_fen(game, fen)) == board.fen(en_passant="legal")
    state = from_fen(game, fen)
    assert {move_to_uci(game, state, action) for action in game.legal_actions(state)} == {move.uci() for move in board.legal_moves}


def test_a_counter_beyond_its_limit_counts_as_the_limit(game):
    late = from_fen(game, "4k3/8/8/8/8/8/P7/4K3 w - - 130 99999")
    assert to_fen(game, late) == "4k3/8/8/8/8/8/P7/4K3 w - - 100 10000" and game.over(late)
    on = without_past(game, late)
    assert to_fen(game, on) == "4k3/8/8/8/8/8/P7/4K3 w - - 0 10000" and len(game.legal_actions(on)) == chess.Board(to_fen(game, late)).legal_moves.count()


def test_rights_in_any_order_and_a_capital_side_are_read(game):
    assert to_fen(game, from_fen(game, "r3k2r/8/8/8/8/8/8/R3K2R B kQqK - 0 1")) == "r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1"


def test_a_game_goes_on_after_every_end_but_mate_and_stalemate(game):
    for fen, open_ in (("4k3/8/8/8/8/8/8/4K3 w - - 0 1", True), ("4k3/8/8/8/8/8/3R4/4K3 w - - 100 80", True),
                       ("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", False), ("7k/6Q1/6K1/8/8/8/8/8 b - - 0 1", False)):
        state = from_fen(game, fen)
        assert game.over(state) and game.over(without_past(game, state)) != open_
        moves = {move_to_uci(game, state, action) for action in game.legal_actions(without_past(game, state))}
        assert moves == {move.uci() for move in chess.Board(fen).legal_moves}


# Moves


@pytest.mark.parametrize("fen, text, move", [
    (BOTH, "e1h1", "e1g1"), (BOTH, "e1a1", "e1c1"), (BOTH.replace("w", "b"), "e8h8", "e8g8"), (BOTH.replace("w", "b"), "E8A8", "e8c8"), (BOTH, "O-O", "e1g1"),
    (BOTH, "0-0-0", "e1c1"), (BOTH, "E1G1", "e1g1"), (PROMOTES, "a7a8Q", "a7a8q"), (PROMOTES, "A7A8=N", "a7a8n"), (PROMOTES, "a7-a8r", "a7a8r"),
    (BOTH, "h1xh8", "h1h8"), (BOTH, " e1e2 ", "e1e2"), (FENS[8], "e2–e4", "e2e4")])
def test_another_spelling_of_a_move_in_uci_is_read(game, fen, text, move):
    state = from_fen(game, fen)
    assert move_to_uci(game, state, uci_to_action(game, state, text)) == move
    if len(text) == 4 and text.islower(): assert chess.Board(fen).parse_uci(text).uci() == move


@pytest.mark.parametrize("fen, text", [
    ("4k3/8/8/8/8/8/8/R3K2R w - - 0 1", "e1h1"), ("4k3/8/8/8/8/8/8/R3Q2R w - - 0 1".replace("Q", "K").replace("K2R", "KQ1R"), "e1g1"), (PROMOTES, "a7a8"), (PROMOTES, "a7a8k"),
    (FENS[8], "e2e4q"), (FENS[8], "0000"), (FENS[8], "(none)"), (FENS[8], ""), (FENS[8], "e1h1"), (FENS[8], "Nf3"), ("4k3/8/8/8/8/8/8/4QK1R w - - 0 1", "e1h1")])
def test_a_move_with_no_meaning_or_more_than_one_is_refused(game, fen, text):
    with pytest.raises(ValueError, match="is not"): uci_to_action(game, from_fen(game, fen), text)
