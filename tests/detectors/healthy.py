"""Losses and gradient norms of healthy runs of many kinds, in numpy; (T,) arrays of 500 steps.

Some are drawn from distributions with the shape of a recipe, some come from training a small
network here. None of them may raise a finding, whatever the seed.
"""

import numpy as np

STEPS = 500


def _noise(rng, sigma, size=STEPS):
    return np.exp(sigma * rng.standard_normal(size))


def _down(start, end, power=0.7, size=STEPS):
    """Power-law decay as in language models."""
    return end + (start - end) * (1 + np.arange(size)) ** -power


def language_model(rng):
    """Cross-entropy from log(50257), gradients of order 1 falling."""
    return _down(10.8, 3.0) * _noise(rng, 0.03), _down(8, 0.4) * _noise(rng, 0.3)


def small_language_model(rng):
    """Few tokens per batch: the noise is wide."""
    return _down(3.3, 1.5) * _noise(rng, 0.15), _down(2, 0.7) * _noise(rng, 0.5)


def log_decay(rng):
    """Regression to a reachable target: six decades down, noise of any size on top."""
    fall = np.exp(-np.arange(STEPS) / 36)
    return 1e3 * fall * _noise(rng, 0.6), 1e4 * fall * _noise(rng, 0.8)


def diffusion(rng):
    """Loss depends on the drawn noise level: log-normal over a decade."""
    return 0.1 * _noise(rng, 0.9), 0.5 * _noise(rng, 1.0)


def gan(rng):
    """Generator and discriminator oscillate, with excursions."""
    swing = 1.5 + np.sin(np.arange(STEPS) / 17) + 0.3 * rng.standard_normal(STEPS)
    return np.abs(swing) * _noise(rng, 0.3), np.abs(swing) * 2 * _noise(rng, 0.7)


def wasserstein(rng):
    """Critic loss of any sign that wanders far from where it began."""
    wander = np.cumsum(rng.standard_normal(STEPS) * np.linspace(0.1, 3, STEPS))
    return wander, np.linspace(0.5, 40, STEPS) * _noise(rng, 0.6)


def policy_gradient(rng):
    """Advantage-weighted log-probabilities: heavy tails on both sides of zero."""
    return 0.02 * rng.standard_t(3, STEPS), 0.5 * _noise(rng, 0.9)


def rare_rewards(rng):
    """Returns are zero in most batches."""
    seen = rng.random(STEPS) < 0.15
    return np.where(seen, 2 * rng.standard_normal(STEPS), 0.01 * rng.standard_normal(STEPS)), (
        np.where(seen, 5, 0.5) * _noise(rng, 0.5)
    )


def value_function(rng):
    """Temporal differences grow by three decades as returns grow."""
    grow = 10 ** (3 * np.arange(STEPS) / STEPS)
    return 0.01 * grow * _noise(rng, 0.7), 0.05 * grow * _noise(rng, 0.7)


def hinge(rng):
    """Triplets whose margin is mostly met: exactly zero, or not."""
    met = rng.random(STEPS) < np.linspace(0.1, 0.9, STEPS)
    return np.where(met, 0.0, 0.3 * rng.random(STEPS)), np.where(met, 0.0, 1.0) * _noise(rng, 0.5)


def warmup_from_zero(rng):
    """Zero-initialised gates open during warm-up; gradients grow 25-fold."""
    ramp = np.minimum(1, (1 + np.arange(STEPS)) / 60)
    return 2.3 - 1.5 * ramp * _noise(rng, 0.05), (0.04 + 0.96 * ramp) * _noise(rng, 0.5)


def accumulation(rng):
    """One recorder step per micro-batch: gradients add up to 16-fold and start again."""
    micro = 1 + np.arange(STEPS) % 16
    return _down(4, 2) * _noise(rng, 0.1), 0.3 * micro * _noise(rng, 0.3)


def loss_scaling(rng):
    """Scaled half precision: overflow at the start and now and then, the scale halves, doubles."""
    scale = 65536.0 * 0.5 ** np.searchsorted([1, 2, 3, 4], np.arange(STEPS), side="right")
    scale *= 2.0 ** (np.arange(STEPS) // 100)
    norms = scale * _noise(rng, 0.4)
    norms[[0, 1, 2, 3, 250]] = np.inf
    return _down(6, 2.5) * _noise(rng, 0.05), norms


def restarts(rng):
    """Cosine learning rate with warm restarts: the loss climbs back within some steps."""
    phase = (np.arange(STEPS) % 125) / 125
    climb = np.minimum(1, phase * 15) * (1 - phase)
    return (0.2 + climb) * _noise(rng, 0.15), (0.3 + climb) * _noise(rng, 0.4)


def alignment(rng):
    """CTC: hundreds at first, a plateau, then down; long utterances cost more."""
    length = 0.5 + rng.random(STEPS)
    return (3 + 300 * np.exp(-np.arange(STEPS) / 8)) * length, (
        (2 + 500 * np.exp(-np.arange(STEPS) / 8)) * length * _noise(rng, 0.5)
    )


def likelihood(rng):
    """Densities: the loss goes from positive to far below zero."""
    return 4 - 10 * np.log1p(np.arange(STEPS) / 40) + rng.standard_normal(STEPS), (
        3 * _noise(rng, 0.8)
    )


def annealed_sum(rng):
    """A weighted term is faded in over 200 steps and triples the loss."""
    fade = np.minimum(1, np.arange(STEPS) / 200)
    return (1 + 2 * fade) * _noise(rng, 0.1), (1 + 4 * fade) * _noise(rng, 0.4)


def edge_of_stability(rng):
    """Full batches, large rate: nearly no noise, swings that grow and fall back."""
    swing = np.exp(np.sin(np.arange(STEPS) / 9) * np.linspace(0, 1.5, STEPS))
    return _down(1, 0.05) * swing * _noise(rng, 0.01), _down(1, 0.2) * swing**2


def power_law(rng):
    """Tails without a variance."""
    return 0.1 * (1 + rng.pareto(2.0, STEPS)), 0.5 * (1 + rng.pareto(2.0, STEPS))


def single_samples(rng):
    """A classifier on separable classes, one sample per step: most cost nothing in the end."""
    return _train(rng, batch=1, rate=0.05, flipped=0.0)


def mislabelled(rng):
    """The same with one label in fifty wrong: a hard sample now and then."""
    return _train(rng, batch=2, rate=0.1, flipped=0.02)


def _train(rng, *, batch, rate, flipped):
    """Softmax regression by plain gradient descent; x (B, 8), weights (8, 4)."""
    centers, weights = 2 * rng.standard_normal((4, 8)), 0.1 * rng.standard_normal((8, 4))
    losses, norms = [], []
    for _ in range(STEPS):
        label = rng.integers(0, 4, batch)
        x = centers[label] + 0.7 * rng.standard_normal((batch, 8))
        label = np.where(rng.random(batch) < flipped, (label + 1) % 4, label)
        logits = x @ weights
        logits -= logits.max(1, keepdims=True)
        chance = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        losses.append(-np.log(np.maximum(chance[np.arange(batch), label], 1e-30)).mean())
        chance[np.arange(batch), label] -= 1
        slope = x.T @ chance / batch
        norms.append(np.sqrt((slope**2).sum()))
        weights = weights - rate * slope
    return np.array(losses), np.array(norms)


RECIPES = {
    recipe.__name__: recipe
    for recipe in (
        language_model, small_language_model, log_decay, diffusion, gan, wasserstein,
        policy_gradient, rare_rewards, value_function, hinge, warmup_from_zero, accumulation,
        loss_scaling, restarts, alignment, likelihood, annealed_sum, edge_of_stability,
        power_law, single_samples, mislabelled,
    )
}  # fmt: skip
