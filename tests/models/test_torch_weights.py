"""torchvision's residual networks from a file: every array lands, and the activations are known."""

import functools
import sys
import types

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import traverse_util
from safetensors import numpy as safetensors_numpy

from pujax import models
from pujax.models import encoder, torch_weights
from tests.models import filled

# Bottlenecks with and without a stride, with and without a shortcut of their own.
SMALL = {"stage_sizes": (2, 1), "width": 8}


def backbone(name="resnet50_v1", **options):
    return models.build(name, embedding_dim=0, **{**SMALL, **options}).backbone


def torch_shapes(stage_sizes, width, *, convs):
    """Names and shapes of torchvision's state dict, written down from its definition.

    `convs` are (kernel side, channels in, channels out) of a block's convolutions, in units of the
    stage's width, with None for the channels of what comes before.
    """
    shapes = {}

    def conv_norm(conv, norm, channels_out, channels_in, side):
        shapes[f"{conv}.weight"] = (channels_out, channels_in, side, side)
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{norm}.{part}"] = (channels_out,)
        shapes[f"{norm}.num_batches_tracked"] = ()

    conv_norm("conv1", "bn1", width, 3, 7)
    channels = width
    for stage, num_blocks in enumerate(stage_sizes, start=1):
        planes = width * 2 ** (stage - 1)
        for block in range(num_blocks):
            prefix, before = f"layer{stage}.{block}", channels
            for index, (side, expansion) in enumerate(convs, start=1):
                conv_norm(
                    f"{prefix}.conv{index}", f"{prefix}.bn{index}", planes * expansion, before, side
                )
                before = planes * expansion
            if before != channels or (stage > 1 and block == 0):
                names = f"{prefix}.downsample.0", f"{prefix}.downsample.1"
                conv_norm(*names, before, channels, 1)
            channels = before
    shapes["fc.weight"], shapes["fc.bias"] = (1000, channels), (1000,)
    return shapes


BOTTLENECK = ((1, 1), (3, 1), (1, 4))
BASIC = ((3, 1), (3, 1))


def fill(shapes):
    rng = np.random.default_rng(7)
    state = {}
    for name, shape in shapes.items():
        values = rng.normal(size=shape)
        if name.endswith("num_batches_tracked"):
            state[name] = np.asarray(5)
            continue
        if len(shape) == 4:
            values *= np.sqrt(2 / np.prod(shape[1:]))
        elif name.endswith("running_var") or "weight" in name:
            values = 1 + 0.5 * np.tanh(values)
        state[name] = values.astype(np.float32)
    return state


@functools.cache
def small_state():
    return fill(torch_shapes(**SMALL, convs=BOTTLENECK))


def write(path, state):
    if path.suffix == ".npz":
        np.savez(path, **state)
    else:
        safetensors_numpy.save_file(
            {name: np.ascontiguousarray(array) for name, array in state.items()}, path
        )
    return str(path)


def flat(loaded):
    return traverse_util.flatten_dict(loaded._asdict(), sep="/")


@pytest.mark.parametrize("lgconv", [False, True])
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_every_entry_lands(tmp_path, suffix, lgconv):
    state = small_state()
    loaded = flat(
        torch_weights.load(write(tmp_path / f"w{suffix}", state), backbone(lgconv=lgconv))
    )
    used = {n for n in state if not n.startswith("fc.") and not n.endswith("num_batches_tracked")}
    assert len(loaded) == len(used)
    # No two entries of the file are alike, so the sums tell them apart.
    sums = sorted(float(np.sum(array, dtype=np.float64)) for array in loaded.values())
    assert sums == sorted(float(np.sum(state[name], dtype=np.float64)) for name in used)
    assert all(type(x) is np.ndarray and x.dtype == np.float32 for x in loaded.values())
    inner = "/conv" if lgconv else ""
    places = {
        "params/stem/kernel": "conv1.weight",
        "params/stem_norm/scale": "bn1.weight",
        "batch_stats/stem_norm/var": "bn1.running_var",
        f"params/stage1_block2/conv2{inner}/kernel": "layer1.1.conv2.weight",
        "params/stage2_block1/norm3/bias": "layer2.0.bn3.bias",
        "batch_stats/stage2_block1/norm1/mean": "layer2.0.bn1.running_mean",
        "params/stage1_block1/shortcut/kernel": "layer1.0.downsample.0.weight",
        "batch_stats/stage2_block1/shortcut_norm/mean": "layer2.0.downsample.1.running_mean",
    }
    for place, name in places.items():
        array = state[name]
        expected = np.moveaxis(array, (0, 1), (3, 2)) if array.ndim == 4 else array
        np.testing.assert_array_equal(loaded[place], expected)


def test_basic_blocks_land_too(tmp_path):
    state = fill(torch_shapes((1, 1), 8, convs=BASIC))
    net = backbone("resnet18_v1", stage_sizes=(1, 1), lgconv=True)
    loaded = flat(torch_weights.load(write(tmp_path / "w.npz", state), net))
    np.testing.assert_array_equal(
        loaded["params/stage2_block1/conv1/conv/kernel"],
        state["layer2.0.conv1.weight"].transpose(2, 3, 1, 0),
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "stage_sizes", "convs", "tensors"),
    [
        ("resnet18_v1", (2, 2, 2, 2), BASIC, 100),
        ("resnet50_v1", (3, 4, 6, 3), BOTTLENECK, 265),
        ("resnet101_v1", (3, 4, 23, 3), BOTTLENECK, 520),
    ],
)
def test_full_networks_expect_the_entries_of_torchvision(name, stage_sizes, convs, tensors):
    shapes = torch_shapes(stage_sizes, 64, convs=convs)
    counters = {key for key in shapes if key.endswith("num_batches_tracked")}
    rest = {k: v for k, v in shapes.items() if k not in counters and not k.startswith("fc.")}
    assert len(rest) == tensors
    if name == "resnet101_v1":
        assert len(rest) + len(counters) == 624
    for lgconv in (False, True):
        net = models.build(name, embedding_dim=0, lgconv=lgconv).backbone
        wanted = torch_weights.expected(net).values()
        assert dict(wanted) == rest
        assert len(wanted) == tensors


def torch_conv(inputs, weight, stride=1):
    """A padded convolution of images [batch, channels, height, width]."""
    side = weight.shape[2]
    pad = side // 2
    padded = np.pad(inputs, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side), axis=(2, 3))
    return np.einsum("bchwij,ocij->bohw", windows[:, :, ::stride, ::stride], weight)


def torch_norm(inputs, state, name):
    scale, bias, mean, var = (
        state[f"{name}.{part}"].astype(np.float64)[:, None, None]
        for part in ("weight", "bias", "running_mean", "running_var")
    )
    return (inputs - mean) / np.sqrt(var + 1e-5) * scale + bias


def torch_forward(images, state):
    """torchvision's bottleneck network in evaluation, channels first and in float64."""
    state = {name: np.asarray(array, np.float64) for name, array in state.items()}
    out = np.maximum(torch_norm(torch_conv(images, state["conv1.weight"], 2), state, "bn1"), 0)
    padded = np.pad(out, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    out = windows[:, :, ::2, ::2].max((4, 5))
    for stage, num_blocks in enumerate(SMALL["stage_sizes"], start=1):
        for block in range(num_blocks):
            prefix, identity = f"layer{stage}.{block}", out
            stride = 2 if stage > 1 and block == 0 else 1
            for index, step in ((1, 1), (2, stride), (3, 1)):
                out = torch_conv(out, state[f"{prefix}.conv{index}.weight"], step)
                out = torch_norm(out, state, f"{prefix}.bn{index}")
                out = np.maximum(out, 0) if index < 3 else out
            if f"{prefix}.downsample.0.weight" in state:
                identity = torch_conv(identity, state[f"{prefix}.downsample.0.weight"], stride)
                identity = torch_norm(identity, state, f"{prefix}.downsample.1")
            out = np.maximum(out + identity, 0)
    return out


@pytest.mark.thorough
@pytest.mark.parametrize("lgconv", [False, True])
def test_activations_are_those_of_torchvision(tmp_path, lgconv):
    """Also with global branches, whose last scale and shift are set to zero here."""
    net = models.build("resnet50_v1", embedding_dim=0, lgconv=lgconv, **SMALL)
    images = np.random.default_rng(9).normal(size=(2, 30, 34, 3)).astype(np.float32)
    fresh = filled.variables(net, images, False)
    loaded = torch_weights.load(write(tmp_path / "w.safetensors", small_state()), net.backbone)
    params, stats = encoder.put(loaded, fresh["params"], fresh["batch_stats"])
    fresh_leaves = jax.tree_util.tree_leaves_with_path(fresh["params"]["backbone"])
    global_leaves = [path for path, _ in fresh_leaves if "global_branch" in str(path)]
    assert len(global_leaves) == (12 * 3 if lgconv else 0)

    def silence(path, leaf):
        return leaf * 0 if [part.key for part in path[-3:-1]] == ["global_branch", "norm"] else leaf

    params = jax.tree_util.tree_map_with_path(silence, params)
    variables = {"params": params["backbone"], "batch_stats": stats["backbone"]}
    maps = backbone(lgconv=lgconv).clone(pool=False)
    outputs = jax.jit(lambda v, x: maps.apply(v, x, False))(variables, images)
    expected = torch_forward(images.transpose(0, 3, 1, 2).astype(np.float64), small_state())
    largest = np.max(np.abs(expected))
    np.testing.assert_allclose(
        outputs, expected.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-5 * largest
    )


def test_put_keeps_fresh_global_branches_and_nothing_else(tmp_path):
    net = models.build("resnet50_v1", embedding_dim=0, lgconv=True, **SMALL)
    shapes = jax.eval_shape(
        lambda key: net.init(key, jnp.zeros((1, 16, 16, 3)), False), jax.random.key(0)
    )
    rng = np.random.default_rng(1)
    fresh = jax.tree.map(lambda leaf: rng.random(leaf.shape), shapes)
    loaded = torch_weights.load(write(tmp_path / "w.npz", small_state()), net.backbone)
    params, stats = encoder.put(loaded, fresh["params"], fresh["batch_stats"])
    assert jax.tree.structure(params) == jax.tree.structure(fresh["params"])
    assert jax.tree.structure(stats) == jax.tree.structure(fresh["batch_stats"])
    put, here = flat(encoder.of(params, stats)), flat(encoder.of(**fresh))
    there = flat(loaded)
    for name, array in put.items():
        wanted = here[name] if "/global_branch/" in name else there[name]
        np.testing.assert_array_equal(array, wanted)

    # An encoder with its own branches puts them in; one that lost some of them is refused.
    whole = encoder.of(**jax.tree.map(lambda leaf: leaf + 1, fresh))
    again, _ = encoder.put(whole, fresh["params"], fresh["batch_stats"])
    jax.tree.map(np.testing.assert_array_equal, again["backbone"], whole.params)
    del whole.params["stage1_block1"]["conv2"]["global_branch"]["gate"]
    with pytest.raises(ValueError, match="stage1_block1/conv2/global_branch/gate/bias .* missing"):
        encoder.put(whole, fresh["params"], fresh["batch_stats"])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_files_become_float32(tmp_path, dtype):
    state = {name: array.astype(dtype) for name, array in small_state().items()}
    loaded = flat(torch_weights.load(write(tmp_path / "w.safetensors", state), backbone()))
    assert all(array.dtype == np.float32 for array in loaded.values())
    kernel = state["layer2.0.conv3.weight"].astype(np.float32).transpose(2, 3, 1, 0)
    np.testing.assert_array_equal(loaded["params/stage2_block1/conv3/kernel"], kernel)


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("layer2.0.conv3.weight", np.nan, "finite numbers"),
        ("bn1.running_var", np.inf, "finite numbers of 0 and more"),
        ("bn1.running_var", -1.0, "finite numbers of 0 and more"),
    ],
)
def test_numbers_that_a_network_cannot_hold_are_named(tmp_path, name, value, accepted):
    state = {key: array.copy() for key, array in small_state().items()}
    state[name].flat[1] = value
    path = write(tmp_path / "w.safetensors", state)
    with pytest.raises(ValueError, match=rf"w.safetensors: {name} holds .*; accepted: {accepted}$"):
        torch_weights.load(path, backbone())


def test_the_prefix_of_data_parallel_is_taken_off(tmp_path):
    state = {f"module.{name}": array for name, array in small_state().items()}
    loaded = torch_weights.load(write(tmp_path / "w.npz", state), backbone())
    np.testing.assert_array_equal(loaded.params["stem_norm"]["bias"], small_state()["bn1.bias"])


def tampered(change):
    state = dict(small_state())
    change(state)
    return state


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda s: s.pop("layer1.1.bn2.bias"), {}, r"1 missing \(layer1.1.bn2.bias\); accepted"),
        (lambda s: s.update(extra=np.zeros(3)), {}, r"network: 1 unexpected \(extra\)"),
        (
            lambda s: s.update({"conv_1.weight": s.pop("conv1.weight")}),
            {},
            r"1 missing \(conv1.weight\); 1 unexpected \(conv_1.weight\)",
        ),
        (
            lambda s: s.update({"bn1.bias": np.zeros(9)}),
            {},
            r"1 of another shape \(bn1.bias \[9\] in place of \[8\]\)",
        ),
        (
            # Height, width, in and out have been put in our order already.
            lambda s: s.update({"conv1.weight": s["conv1.weight"].transpose(2, 3, 1, 0)}),
            {},
            r"conv1.weight \[7, 7, 3, 8\] in place of \[8, 3, 7, 7\]",
        ),
        (
            lambda s: s.update({f"module.{name}": s.pop(name) for name in ("bn1.bias",)}),
            {},
            r"missing \(bn1.bias\); 1 unexpected \(module.bn1.bias\)",
        ),
        # 3 convolutions and a shortcut with 4 numbers of batch norm each, and 3 names of them.
        (
            lambda s: None,
            {"stage_sizes": (2, 1, 1)},
            r"^.*: 20 missing \((layer3.0\S+ ){3}\.\.\.\)",
        ),
        (lambda s: None, {"stage_sizes": (1, 1)}, r"network: 15 unexpected \(layer1.1.conv1"),
        (lambda s: None, {"width": 16}, "of another shape .*, ..."),
        (
            lambda s: None,
            {"stem": "cifar"},
            r"\[8, 3, 7, 7\] in place of \[8, 3, 3, 3\].*stem 'cifar' .* must be 'imagenet'",
        ),
        (lambda s: s.clear(), {}, r"60 missing \(.*\.\.\.\)"),
    ],
)
def test_names_and_shapes_that_differ_are_counted_and_named(tmp_path, change, options, message):
    path = write(tmp_path / "w.npz", tampered(change))
    with pytest.raises(ValueError, match=message):
        torch_weights.load(path, backbone(**options))


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"hello, this is no archive", None])
def test_damaged_files_are_named(tmp_path, suffix, content):
    path = tmp_path / f"w{suffix}"
    if content is None:
        write(path, small_state())
        content = path.read_bytes()[:-1000]
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"w{suffix} is damaged"):
        torch_weights.load(str(path), backbone())


@pytest.mark.parametrize("pickled", [True, False])
def test_arrays_that_are_no_archive_are_named(tmp_path, pickled):
    path = tmp_path / "w.npz"
    with open(path, "wb") as file:
        np.save(file, np.asarray([{}], object) if pickled else np.zeros(3), allow_pickle=pickled)
    with pytest.raises(ValueError, match="w.npz is damaged"):
        torch_weights.load(str(path), backbone())


def test_what_is_no_file_of_weights_or_no_such_network_is_named(tmp_path):
    with pytest.raises(ValueError, match="'w.onnx'; accepted: .*safetensors, .*npz, .*pth"):
        torch_weights.load("w.onnx", backbone())
    with pytest.raises(ValueError, match="none.npz'; accepted: a local file that exists"):
        torch_weights.load(str(tmp_path / "none.npz"), backbone())
    other = models.build("resnet50", embedding_dim=0).backbone
    with pytest.raises(ValueError, match="backbone is a ResNet50; accepted: resnet18_v1"):
        torch_weights.load(str(tmp_path / "none.npz"), other)


def test_without_torch_its_files_are_refused_with_the_way_to_convert_them(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "w.pth").write_bytes(b"")
    with pytest.raises(ValueError, match=r"torch is not installed; accepted: .*numpy.savez"):
        torch_weights.load(str(tmp_path / "w.pth"), backbone())


class FakeTensor:
    """The two methods of a torch tensor that reading needs."""

    def __init__(self, array):
        self.array = array

    def float(self):
        return FakeTensor(self.array.astype(np.float32))

    def numpy(self):
        return self.array


def fake_torch(state, calls):
    def load(path, **options):
        calls.append(options)
        if isinstance(state, Exception):
            raise state
        return state

    return types.SimpleNamespace(load=load, Tensor=FakeTensor)


def test_with_torch_its_files_are_read_without_running_what_they_hold(tmp_path, monkeypatch):
    (tmp_path / "w.pth").write_bytes(b"")
    path, calls = str(tmp_path / "w.pth"), []
    state = {name: FakeTensor(array) for name, array in small_state().items()}
    monkeypatch.setitem(sys.modules, "torch", fake_torch(state, calls))
    loaded = torch_weights.load(path, backbone())
    same = torch_weights.load(write(tmp_path / "w.npz", small_state()), backbone())
    jax.tree.map(np.testing.assert_array_equal, loaded, same)
    assert calls == [{"map_location": "cpu", "weights_only": True}]

    for bad, message in (
        ({"state_dict": state}, "holds no plain state dict"),
        ([1, 2], "holds no plain state dict"),
        (RuntimeError("no archive"), r"cannot be read .* \(RuntimeError\); accepted"),
    ):
        monkeypatch.setitem(sys.modules, "torch", fake_torch(bad, calls))
        with pytest.raises(ValueError, match=message):
            torch_weights.load(path, backbone())
