"""Small models with random weights that nobody here wrote, and how each is used.

Shape letters: B = batch, C = channels, H W = pixels, T = tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import diffusers
import peft
import timm
import torch
import torchvision
import transformers
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

CLASSES = 7
WORDS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model: how it is made, fed and used, and where faults are planted in it."""

    build: Callable[[], nn.Module]
    batch: Callable[[], Any]
    """Draws from the global generator."""

    loss: Callable[[nn.Module, Any], Tensor]
    infer: Callable[[nn.Module, Any], Any]

    nan: str
    """Module whose weight gets one NaN."""

    zero: str
    """Module whose parameters all become 0, which makes the output 0."""

    overflow: str
    """Module whose weight becomes huge, so that its output is not finite."""

    op: str
    """Operator that overflows then, without its overload."""

    noticed: bool = True
    """Do the zeros and the overflow show in the output? Else they are captured by hand."""


def _pictures(size: int, channels: int = 3) -> Callable[[], tuple[Tensor, Tensor]]:
    def batch() -> tuple[Tensor, Tensor]:
        return torch.randn(2, channels, size, size), torch.randint(CLASSES, (2,))

    return batch


def _classify(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def _first(model: nn.Module, batch: tuple[Tensor, ...]) -> Any:
    return model(batch[0])


def _timm(name: str, size: int, **places: Any) -> Model:
    options = places.pop("options", {})
    return Model(
        build=lambda: timm.create_model(name, num_classes=CLASSES, **options),
        batch=_pictures(size),
        loss=_classify,
        infer=_first,
        **places,
    )


def _tokens() -> dict[str, Tensor]:
    ids_BT = torch.randint(3, WORDS, (2, 12))
    mask_BT = torch.ones_like(ids_BT)
    mask_BT[1, 8:] = 0
    return {"input_ids": ids_BT, "attention_mask": mask_BT, "labels": ids_BT.clone()}


def _language_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    loss: Tensor = model(**batch).loss
    return loss


def _logits(model: nn.Module, batch: dict[str, Tensor]) -> Any:
    return model(**batch).logits


def _language(build: Callable[[], nn.Module], **places: Any) -> Model:
    places.setdefault("infer", _logits)
    return Model(build=build, batch=_tokens, loss=_language_loss, **places)


def _gpt2() -> nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=WORDS,
            n_positions=32,
            n_embd=32,
            n_layer=2,
            n_head=2,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
    )


def _llama() -> nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=WORDS,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
        )
    )


def _bert() -> nn.Module:
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=WORDS,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=48,
            max_position_embeddings=32,
        )
    )


def _t5() -> nn.Module:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=WORDS,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        )
    )


def _lora() -> nn.Module:
    return peft.get_peft_model(
        _gpt2(),
        peft.LoraConfig(
            target_modules=["c_attn"],
            r=4,
            lora_dropout=0.1,
            init_lora_weights=False,
            fan_in_fan_out=True,
        ),
    )


def _generate(model: nn.Module, batch: dict[str, Tensor]) -> Any:
    return model.generate(
        batch["input_ids"][:, :4],
        attention_mask=batch["attention_mask"][:, :4],
        max_new_tokens=3,
        do_sample=True,
    )


def _detector() -> nn.Module:
    return torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=CLASSES,
        min_size=64,
        max_size=96,
        box_score_thresh=0.0,
        box_detections_per_img=5,
    )


def _scenes() -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    images = [torch.rand(3, 64, 80), torch.rand(3, 72, 64)]
    targets = []
    for _ in images:
        corner_N2 = torch.rand(2, 2) * 30
        boxes_N4 = torch.cat([corner_N2, corner_N2 + 12 + torch.rand(2, 2) * 20], 1)
        targets.append({"boxes": boxes_N4, "labels": torch.randint(1, CLASSES, (2,))})
    return images, targets


def _detector_loss(model: nn.Module, batch: Any) -> Tensor:
    losses: dict[str, Tensor] = model(*batch)
    return torch.stack(list(losses.values())).sum()


def _noise_batch() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(2, 3, 16, 16), torch.randint(1000, (2,)), torch.randn(2, 5, 16)


def _unet() -> nn.Module:
    return diffusers.UNet2DModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )


def _conditional_unet() -> nn.Module:
    return diffusers.UNet2DConditionModel(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=8,
        cross_attention_dim=16,
        attention_head_dim=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )


def _vae() -> nn.Module:
    return diffusers.AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        norm_num_groups=8,
        layers_per_block=1,
        sample_size=16,
    )


def _denoise(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Any:
    noisy, when, words = batch
    if isinstance(model, diffusers.UNet2DConditionModel):
        return model(noisy, when, encoder_hidden_states=words).sample
    return model(noisy, when).sample


def _denoise_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    return mse_loss(_denoise(model, batch), torch.zeros(2, 3, 16, 16))


def _autoencode(model: nn.Module, batch: tuple[Tensor, ...]) -> Any:
    # Neither encode() nor decode() calls the root's own forward.
    return model.decode(model.encode(batch[0]).latent_dist.sample()).sample


def _autoencode_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    return mse_loss(_autoencode(model, batch), batch[0])


MODELS = {
    "resnet18": _timm(
        "resnet18",
        64,
        nan="layer2.0.conv1",
        zero="fc",
        overflow="layer3.0.conv2",
        op="aten.convolution",
    ),
    "vit": _timm(
        "vit_tiny_patch16_224",
        64,
        options={"img_size": 64, "depth": 3},
        nan="blocks.1.mlp.fc1",
        zero="head",
        overflow="blocks.1.mlp.fc1",
        op="aten.addmm",
    ),
    "convnext": _timm(
        "convnext_atto",
        64,
        options={"depths": (1, 1, 2, 1)},
        nan="stages.1.blocks.0.mlp.fc2",
        zero="head.fc",
        overflow="stages.2.blocks.0.mlp.fc1",
        op="aten.convolution",
    ),
    "swin": _timm(
        "swin_tiny_patch4_window7_224",
        56,
        options={"img_size": 56, "depths": (1, 1, 2, 1)},
        nan="layers.1.blocks.0.attn.qkv",
        zero="head.fc",
        overflow="layers.2.blocks.1.mlp.fc1",
        op="aten.addmm",
    ),
    "efficientnet": _timm(
        "efficientnet_b0",
        64,
        nan="blocks.3.1.conv_pwl",
        zero="classifier",
        overflow="blocks.0.0.conv_dw",
        op="aten.convolution",
    ),
    "fasterrcnn": Model(
        build=_detector,
        batch=_scenes,
        loss=_detector_loss,
        infer=_first,
        nan="backbone.fpn.inner_blocks.0.0",
        zero="roi_heads.box_predictor.cls_score",
        overflow="backbone.body.0.0",
        op="aten.convolution",
        noticed=False,
    ),
    "gpt2": _language(
        _gpt2,
        nan="transformer.h.1.attn.c_attn",
        zero="transformer.ln_f",
        overflow="transformer.h.0.mlp.c_fc",
        op="aten.addmm",
    ),
    "gpt2_generate": _language(
        _gpt2,
        infer=_generate,
        nan="transformer.h.0.ln_2",
        zero="transformer.ln_f",
        overflow="transformer.h.1.mlp.c_fc",
        op="aten.addmm",
    ),
    "llama": _language(
        _llama,
        nan="model.layers.1.mlp.up_proj",
        zero="lm_head",
        overflow="model.layers.0.mlp.gate_proj",
        op="aten.mm",
    ),
    "bert": _language(
        _bert,
        nan="bert.encoder.layer.1.attention.self.query",
        zero="cls.predictions.transform.LayerNorm",
        overflow="bert.encoder.layer.0.intermediate.dense",
        op="aten.addmm",
    ),
    "t5": _language(
        _t5,
        nan="encoder.block.1.layer.0.SelfAttention.v",
        zero="decoder.final_layer_norm",
        overflow="decoder.block.0.layer.2.DenseReluDense.wi",
        op="aten.mm",
    ),
    "lora_gpt2": _language(
        _lora,
        nan="base_model.model.transformer.h.1.attn.c_attn.lora_A.default",
        zero="base_model.model.transformer.ln_f",
        overflow="base_model.model.transformer.h.0.mlp.c_fc",
        op="aten.addmm",
    ),
    "unet": Model(
        build=_unet,
        batch=_noise_batch,
        loss=_denoise_loss,
        infer=_denoise,
        nan="mid_block.attentions.0.to_k",
        zero="conv_out",
        overflow="down_blocks.1.resnets.0.conv1",
        op="aten.convolution",
    ),
    "conditional_unet": Model(
        build=_conditional_unet,
        batch=_noise_batch,
        loss=_denoise_loss,
        infer=_denoise,
        nan="up_blocks.0.attentions.1.transformer_blocks.0.attn2.to_q",
        zero="conv_out",
        overflow="mid_block.resnets.1.conv2",
        op="aten.convolution",
    ),
    "vae": Model(
        build=_vae,
        batch=_noise_batch,
        loss=_autoencode_loss,
        infer=_autoencode,
        nan="decoder.mid_block.resnets.0.conv1",
        zero="decoder.conv_out",
        overflow="encoder.conv_in",
        op="aten.convolution",
    ),
}
