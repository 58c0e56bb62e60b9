"AlphaZero in notebooks: compiled games, batched search, self-play on every device, training, and boards to play on."
__version__ = "0.0.1"

from alphazero_nb.core.events import set_default_listener


def _dashboard(skip: tuple = ()):
    "Return a dashboard, which prints lines where there is no notebook. Drawing code is imported only now."
    from alphazero_nb.ui.dashboard import Dashboard
    return Dashboard(skip=skip)


set_default_listener(_dashboard)
