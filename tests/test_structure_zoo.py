"""Models that nobody here wrote are rebuilt from their description alone, without any trust."""

from __future__ import annotations

import pytest
import torch

from flightrec.trust import Trust
from tests.twins import assert_same, run, through_json

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def seeded(make, *args, **kwargs):
    torch.manual_seed(1)
    return make(*args, **kwargs).train()


def stranger(model, *, trust=None):
    """Rebuild as from an incident of somebody else, and expect that nothing is missing."""
    models, description = through_json(model, trust or Trust())
    assert description.not_captured == []
    return models[""]


TIMM = {
    "resnet18": {},
    "vit_tiny_patch16_224": {"img_size": 32, "depth": 2, "drop_path_rate": 0.1},
    "swin_tiny_patch4_window7_224": {
        "img_size": 56,
        "depths": (1, 1),
        "embed_dim": 24,
        "num_heads": (2, 2),
    },
    "convnext_atto": {"drop_path_rate": 0.1},
    "efficientnet_b0": {"drop_rate": 0.1},
    "maxvit_rmlp_pico_rw_256": {"img_size": 64},
    "coat_lite_tiny": {"img_size": 64},
    "mixer_s32_224": {"img_size": 64},
    "mobilenetv3_small_050": {},
    "regnety_002": {},
    "deit_tiny_distilled_patch16_224": {"img_size": 32, "depth": 2},
    "eva02_tiny_patch14_224": {"img_size": 28, "depth": 2},
}


@pytest.mark.parametrize("name", TIMM)
def test_timm(name):
    timm = pytest.importorskip("timm")
    model = seeded(timm.create_model, name, num_classes=5, **TIMM[name])
    size = TIMM[name].get("img_size", 64)
    assert_same(model, stranger(model), torch.randn(2, 3, size, size))


SMALL = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 50,
}


@pytest.mark.parametrize("name", ["GPT2", "Llama", "Bert", "Mistral", "ViT", "Qwen3", "Roberta"])
def test_transformers(name):
    transformers = pytest.importorskip("transformers")
    options = dict(SMALL)
    if name == "GPT2":
        options = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 32}
    if name in ("Mistral", "Qwen3", "Llama"):
        options["num_key_value_heads"] = 1
    if name == "ViT":
        options = {k: v for k, v in SMALL.items() if k != "vocab_size"}
        options |= {"image_size": 16, "patch_size": 8}
    config = getattr(transformers, f"{name}Config")(**options)
    if name in ("Bert", "Roberta"):
        make = getattr(transformers, f"{name}ForMaskedLM")
    elif name == "ViT":
        make = transformers.ViTForImageClassification
    else:
        make = getattr(transformers, f"{name}ForCausalLM" if name != "GPT2" else "GPT2LMHeadModel")
    model = seeded(make, config)
    twin = stranger(model)
    if name == "ViT":
        assert_same(model, twin, torch.randn(2, 3, 16, 16))
        return
    ids = torch.randint(2, 50, (2, 7))
    assert_same(model, twin, input_ids=ids, labels=ids)
    assert twin.config.to_dict() == model.config.to_dict()
    mine = model(ids, output_hidden_states=True, output_attentions=name == "Bert")
    twin = stranger(model)  # by now the library has hung its own hooks on it
    other = twin(ids, output_hidden_states=True, output_attentions=name == "Bert")
    assert len(other.hidden_states) == len(mine.hidden_states) > 0
    if hasattr(model, "generation_config") and name in ("GPT2", "Llama"):
        model.eval(), twin.eval()
        options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
        assert torch.equal(model.generate(ids, **options), twin.generate(ids, **options))


def test_t5():
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        vocab_size=50,
        decoder_start_token_id=0,
    )
    model = seeded(transformers.T5ForConditionalGeneration, config)
    ids = torch.randint(2, 50, (2, 7))
    twin = stranger(model)
    assert_same(model, twin, input_ids=ids, labels=ids)
    assert twin.shared.weight is twin.encoder.embed_tokens.weight
    assert twin.shared.weight is twin.lm_head.weight


def test_checkpointed_with_frozen_embeddings():
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    base = seeded(transformers.LlamaForCausalLM, transformers.LlamaConfig(**SMALL))
    base.gradient_checkpointing_enable({"use_reentrant": True})
    base.enable_input_require_grads()
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj"])).train()
    ids = torch.randint(2, 50, (2, 7))
    assert_same(model, stranger(model), input_ids=ids, labels=ids)


def test_faster_rcnn():
    detection = pytest.importorskip("torchvision.models.detection")
    model = seeded(
        detection.fasterrcnn_mobilenet_v3_large_320_fpn,
        weights=None,
        weights_backbone=None,
        num_classes=3,
        min_size=64,
        max_size=64,
        rpn_pre_nms_top_n_train=50,
        rpn_post_nms_top_n_train=20,
    )
    images = [torch.rand(3, 64, 64), torch.rand(3, 64, 64)]
    boxes = torch.tensor([[4.0, 4.0, 30.0, 30.0]])
    targets = [{"boxes": boxes, "labels": torch.tensor([1])} for _ in images]
    twin = stranger(model)
    for _ in range(2):
        expected, grads = losses(model, images, targets)
        actual, others = losses(twin, images, targets)
        assert all(torch.equal(actual[name], expected[name]) for name in expected)
        assert all(torch.equal(others[name], grads[name]) for name in grads)
    model.eval(), twin.eval()
    for mine, other in zip(model(images), twin(images), strict=True):
        assert all(torch.equal(mine[name], other[name]) for name in mine)


def losses(model, images, targets):
    torch.manual_seed(0)
    model.zero_grad()
    found = model(images, targets)
    sum(found.values()).backward()
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {name: loss.detach() for name, loss in found.items()}, grads


@pytest.mark.parametrize("name", ["retinanet_resnet50_fpn", "ssdlite320_mobilenet_v3_large"])
def test_other_detectors(name):
    detection = pytest.importorskip("torchvision.models.detection")
    options = {"min_size": 64, "max_size": 64} if name.startswith("retina") else {}
    options |= {"weights": None, "weights_backbone": None, "num_classes": 3}
    model = seeded(getattr(detection, name), **options)
    twin = stranger(model.eval())
    image = [torch.rand(3, 64, 64)]
    with torch.no_grad():
        mine, other = model(image)[0], twin(image)[0]
    assert all(torch.equal(mine[key], other[key]) for key in mine)


@pytest.mark.parametrize(
    "name", ["resnet18", "mobilenet_v3_small", "vit_b_16", "shufflenet_v2_x0_5"]
)
def test_torchvision(name):
    models = pytest.importorskip("torchvision.models")
    options = {"image_size": 32} if name == "vit_b_16" else {}
    model = seeded(getattr(models, name), weights=None, num_classes=4, **options)
    size = 32 if name == "vit_b_16" else 64
    assert_same(model, stranger(model), torch.randn(2, 3, size, size))


def test_unet():
    diffusers = pytest.importorskip("diffusers")
    model = seeded(
        diffusers.UNet2DModel,
        sample_size=16,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    twin = stranger(model)
    assert twin.config == model.config
    assert_same(model, twin, torch.randn(2, 3, 16, 16), torch.tensor([3, 9]))


def test_conditional_unet():
    diffusers = pytest.importorskip("diffusers")
    model = seeded(
        diffusers.UNet2DConditionModel,
        sample_size=16,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=8,
        attention_head_dim=4,
    )
    context = torch.randn(2, 5, 8)
    twin = stranger(model)
    assert_same(model, twin, torch.randn(2, 4, 16, 16), torch.tensor([3, 9]), context)


def test_autoencoder_and_scheduler():
    diffusers = pytest.importorskip("diffusers")
    model = seeded(
        diffusers.AutoencoderKL,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )
    model.scheduler = diffusers.DDPMScheduler(num_train_timesteps=10)
    twin = stranger(model)
    assert twin.scheduler.config == model.scheduler.config
    assert torch.equal(twin.scheduler.alphas_cumprod, model.scheduler.alphas_cumprod)
    assert_same(model, twin, torch.randn(1, 3, 16, 16))


@pytest.mark.parametrize("options", [{}, {"use_dora": True}, {"lora_dropout": 0.1}], ids=str)
def test_peft(options):
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    config = transformers.LlamaConfig(num_key_value_heads=1, **SMALL)
    base = seeded(transformers.LlamaForCausalLM, config)
    lora = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], **options)
    model = peft.get_peft_model(base, lora).train()
    ids = torch.randint(2, 50, (2, 7))
    twin = stranger(model)
    assert_same(model, twin, input_ids=ids, labels=ids)
    assert twin.active_adapter == model.active_adapter
    with twin.disable_adapter(), model.disable_adapter():
        mine, _ = run_logits(model, ids)
        other, _ = run_logits(twin, ids)
    assert torch.equal(mine, other)


def run_logits(model, ids):
    with torch.no_grad():
        return model(input_ids=ids).logits, None


def test_accelerate_mixed_precision():
    accelerate = pytest.importorskip("accelerate")
    timm = pytest.importorskip("timm")
    accelerator = accelerate.Accelerator(mixed_precision="bf16", cpu=True)
    model = accelerator.prepare(seeded(timm.create_model, "resnet18", num_classes=3))
    twin = stranger(model)
    x = torch.randn(2, 3, 32, 32)
    expected, grads = run(model, x)
    actual, others = run(twin, x)
    assert actual.dtype is torch.float32
    assert torch.equal(actual, expected)
    assert all(torch.equal(others[name], grads[name]) for name in grads)


def test_accelerate_hooks():
    hooks = pytest.importorskip("accelerate.hooks")
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    hooks.add_hook_to_module(model[0], hooks.AlignDevicesHook(execution_device="cpu"))
    models, description = through_json(model, Trust())
    assert [note["what"] for note in description.not_captured] == [
        "0: accelerate's AlignDevicesHook"
    ]
    assert_same(model, models[""], torch.randn(2, 3))
