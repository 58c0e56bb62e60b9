"""Everything a notebook needs: `from alphazero_nb.all import *`."""
from alphazero_nb.core.device import check_device, device_report, get_device, list_devices
from alphazero_nb.core.events import JsonLines, read_events
from alphazero_nb.core.game_check import ContractError
from alphazero_nb.core.game import Game, board_symmetries
from alphazero_nb.core.registry import get_game, list_games, register
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.core.records import GameRecord
from alphazero_nb.network.networks import PRESETS, PolicyValueNet
from alphazero_nb.network.evaluator import BatchedEvaluator, EvaluatorError, NetworkEvaluator, UniformEvaluator
from alphazero_nb.network.pretrained import list_pretrained
from alphazero_nb.search.search import SearchSettings
from alphazero_nb.search.agent import Agent
from alphazero_nb.search.analysis import PositionAnalysis, analyse
from alphazero_nb.search.levels import Level, Rating
from alphazero_nb.selfplay.settings import EFFORTS, SelfPlaySettings, default_settings
from alphazero_nb.selfplay.layout import Layout
from alphazero_nb.selfplay.slots import GameFailed, retrace
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.arena.solvers import Unsolved, get_solver
from alphazero_nb.arena.players import HeuristicPlayer, RandomPlayer, RolloutPlayer, SolverPlayer, get_player
from alphazero_nb.arena.matches import play_duplicate, play_match
from alphazero_nb.arena.ladder import run_ladder
from alphazero_nb.arena.level_curve import calibrate_levels, describe_levels
from alphazero_nb.arena.judge import PositionSet, judge, packaged_positions, read_positions
from alphazero_nb.training.replay import Replay
from alphazero_nb.training.learner import Learner, TrainSettings, default_training
from alphazero_nb.training.run_folder import download, newest_games, run_folder
from alphazero_nb.training.producer import produce_games
from alphazero_nb.training.trainer import Trainer
from alphazero_nb.training.forecast import forecast, train
from alphazero_nb.training.operator_check import check_operators
from alphazero_nb.ui.progress import TensorBoard, TextProgress, describe
from alphazero_nb.ui.dashboard import Dashboard
from alphazero_nb.ui.board import register_drawing, stone_board
from alphazero_nb.ui.grid import GridDrawing
from alphazero_nb.ui.card_table import register_table
from alphazero_nb.ui.tree_view import heat_html, moves_html, moves_text, tree_html, tree_svg
from alphazero_nb.ui.game_line import find_handicaps, register_handicaps
from alphazero_nb.ui.coach import Lesson, coach, lesson_html
from alphazero_nb.ui.puzzles import Puzzle, puzzle_html, puzzles
from alphazero_nb.ui.match import Match
from alphazero_nb.ui.match_view import match_html, match_png
from alphazero_nb.ui.play import open_match, play
from alphazero_nb.ui.plots import (plot_batch_sizes, plot_calibration, plot_evaluator, plot_games, plot_history,
                                   plot_ladder, plot_layouts, plot_losses, plot_machine, plot_policy, plot_strength,
                                   prior_and_visits)
from alphazero_nb.ui.report import report
from alphazero_nb.web.page import export_page
from alphazero_nb.lab.study import study
from alphazero_nb.benchmark import bench_cards, bench_kernels, bench_layouts, bench_machine, bench_selfplay

__all__ = [
    "Lesson", "PositionAnalysis", "Puzzle", "analyse", "coach", "heat_html", "lesson_html", "moves_html", "moves_text",
    "puzzle_html", "puzzles", "tree_html", "tree_svg",
    "Agent", "BatchedEvaluator", "ContractError", "Dashboard", "EFFORTS", "EvaluatorError", "Game", "GameFailed",
    "GameRecord", "GridDrawing", "HeuristicPlayer", "JsonLines", "Layout", "Learner", "Level", "Match", "NetworkEvaluator", "PRESETS",
    "PolicyValueNet", "PositionSet", "PythonGame", "RandomPlayer", "Rating", "Replay", "RolloutPlayer", "SearchSettings",
    "SelfPlayEngine", "SelfPlaySettings", "SolverPlayer", "TensorBoard", "TextProgress", "TrainSettings", "Trainer", "Unsolved",
    "UniformEvaluator", "bench_cards", "bench_kernels", "bench_layouts", "bench_machine", "bench_selfplay",
    "board_symmetries", "calibrate_levels",
    "check_device", "check_operators", "default_settings", "default_training", "describe", "describe_levels", "device_report", "download", "export_page", "find_handicaps", "forecast", "get_device", "get_game",
    "get_player", "get_solver", "judge", "list_devices", "list_games", "list_pretrained", "match_html", "match_png", "newest_games",
    "open_match", "packaged_positions", "play", "play_duplicate", "play_match", "plot_batch_sizes",
    "plot_calibration", "plot_evaluator", "plot_games", "plot_history", "plot_ladder", "plot_layouts",
    "plot_losses", "plot_machine", "plot_policy", "plot_strength", "prior_and_visits", "produce_games", "read_events",
    "read_positions", "register", "register_drawing", "register_handicaps", "register_table", "report", "retrace", "run_folder",
    "run_ladder", "stone_board", "study", "train",
]
