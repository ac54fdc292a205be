//! Whole models, recorded part by part from transformers' own: the first wrong part is found and its mistake named, and what
//! differs by rounding alone is never taken as wrong.

mod common;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use common::fixtures;
use mha_trace::check::{ByLayer, How, Tolerances, Unshard, Verdict, by_layer};
use mha_trace::file::Bundle;
use mha_trace::foreign::ModelPart;

fn compared(left: &Path, right: &Path) -> ByLayer {
    by_layer(left, right, None, &Tolerances::default())
        .unwrap_or_else(|error| panic!("{}: {error}", right.display()))
}

fn at(name: &str) -> PathBuf {
    fixtures("whole").join(name)
}

fn wrong_parts(found: &ByLayer) -> Vec<&str> {
    let wrong = found.lines.iter().filter(|line| line.is_wrong);
    wrong.map(|line| line.name.as_str()).collect()
}

/// Whether a module gave it.
fn is_output(name: &str) -> bool {
    name.rsplit('.').next() == Some("out")
}

/// The sentences of what was found at the first wrong part.
fn summaries(found: &ByLayer) -> Vec<String> {
    let named = found.named.as_ref();
    let report = named.and_then(|named| named.report.as_ref());
    let findings = report.and_then(|report| report.diagnosis.as_ref());
    let findings = findings.into_iter().flat_map(|diagnosis| &diagnosis.findings);
    let summaries = findings.flat_map(|found| std::iter::once(found).chain(&found.also));
    let summaries = summaries.map(|found| format!("{}: {}", found.id, found.summary));
    summaries.chain(named.into_iter().flat_map(|named| named.facts.clone())).collect()
}

/// Other kernels, other types, padding elsewhere, and the steps of a cache.
#[test]
fn right_models_are_never_accused() {
    for port in
        ["llama-eager", "llama-bf16", "llama-f64", "llama-padded", "llama-cache", "llama-reference"]
    {
        let found = compared(&at("llama-reference"), &at(port));
        let wrong = wrong_parts(&found);
        assert!(found.is_same() && wrong.is_empty(), "{port}: {wrong:?} {:?}", found.warning);
        assert_eq!(found.compared(), 22, "{port}");
    }
}

/// Angles in the model's own 16 bits are off by more than rounding makes of any number.
#[test]
fn angles_in_few_bits_are_no_rounding() {
    let reference = at("long-llama-reference");
    let found = compared(&reference, &at("long-llama-eager"));
    assert!(found.is_same(), "{:?}", wrong_parts(&found));
    let found = compared(&reference, &at("long-llama-angles"));
    assert_eq!(wrong_parts(&found), ["model.layers.0.self_attn.out"]);
    let told = summaries(&found);
    let is_told = |told: &String| told.contains("positions, frequencies and angles");
    assert!(told.iter().any(is_told), "{told:?}");
}

/// A model that is cast to 16 bits as a whole has its frequencies in these, too.
#[test]
fn frequencies_of_a_model_that_is_cast_are_no_mistake() {
    let found = compared(&at("long-qwen3-reference"), &at("long-qwen3-cast"));
    assert!(found.is_same(), "{:?} {:?}", wrong_parts(&found), summaries(&found));
}

/// An item of a padded batch beside the same without the others and without padding, on either side.
#[test]
fn an_item_is_found_among_those_of_a_batch() {
    let [two, one] = ["bert-of-two-reference", "bert-of-one"].map(at);
    for (left, right, tokens) in [(&two, &one, "3 of 8"), (&one, &two, "3 of 3")] {
        let found = compared(left, right);
        assert!(found.is_same(), "{:?} {:?}", found.warning, wrong_parts(&found));
        let told = found.aligned.as_ref().is_some_and(|told| told.contains(tokens));
        assert!(told && found.compared() > 15, "{:?}", found.aligned);
    }
}

/// What is wrong in ports of PyTorch's own numbers, and where.
#[test]
fn what_is_taken_from_elsewhere_or_left_out_is_named() {
    for (reference, port, first, fact) in [
        (
            "phi3-reference",
            "phi3-in-turns",
            "model.layers.1.mlp.out",
            "it takes the rows of gate_up_proj.weight in turns as gate and first projection",
        ),
        (
            "mixtral-reference",
            "mixtral-exchanged",
            "model.layers.1.mlp.out",
            "its parameter experts.down_proj has the reference's experts in another order: 0, 2, 1, 3",
        ),
        (
            "mixtral-reference",
            "mixtral-counted",
            "model.layers.1.mlp.out",
            "each of 2 ranks counts the experts that it has from 0",
        ),
        (
            "mixtral-reference",
            "mixtral-loaded",
            "model.layers.1.mlp.out",
            "each of 2 ranks computes its experts with the parameters of the first rank's",
        ),
        (
            "llama-reference",
            "llama-tied",
            "lm_head.out",
            "its matrix is that of model.embed_tokens, as where the two are tied",
        ),
        (
            "bloom-reference",
            "bloom-without-norm",
            "transformer.word_embeddings_layernorm.out",
            "transformer.word_embeddings_layernorm is left out",
        ),
    ] {
        let found = compared(&at(reference), &at(port));
        let name = found.first.map(|at| found.lines[at].name.as_str());
        assert_eq!(name, Some(first), "{port}");
        let told = summaries(&found);
        assert!(told.iter().any(|told| told.starts_with(fact)), "{port}: {told:?}");
    }
}

/// A layer of which the port has no more than what it gives, and an early norm of which it does not have what that gave.
#[test]
fn what_is_wrong_between_recorded_tensors_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("coarse.safetensors");
    let of_layers = |name: &str| {
        let inner = name.strip_prefix("model.layers.").and_then(|own| own.strip_suffix(".out"));
        inner.is_some_and(|own| own.parse::<usize>().is_ok()).then(|| name.to_owned())
    };
    for (port, fact) in [
        ("llama-reference", None),
        (
            "llama-without-residual",
            Some(
                "model.layers.0.out is not added where model.layers.1.post_attention_layernorm.in is made",
            ),
        ),
    ] {
        renamed(&at(port).join("parts.safetensors"), &path, of_layers);
        let found = compared(&at("llama-reference"), &path);
        let told = summaries(&found);
        assert_eq!(told.first().map(String::as_str), fact, "{port}");
    }
    let early = at("llama-normed-early").join("parts.safetensors");
    renamed(&early, &path, |name| is_output(name).then(|| name.to_owned()));
    let found = compared(&at("llama-reference"), &path);
    let told = summaries(&found);
    let fact = "it reads model.norm(model.layers.1.out), not model.layers.1.out";
    assert!(told.iter().any(|told| told == fact), "{told:?}");
    let found = compared(&at("llama-reference"), &at("llama-normed-early"));
    let told = found.named.map(|named| named.what);
    let made = "and in the port model.norm(model.layers.1.out)";
    assert!(told.as_ref().is_some_and(|told| told.ends_with(made)), "{told:?}");
}

/// A module that was recorded by its last part alone.
#[test]
fn what_a_module_gives_stands_beside_its_last_part() {
    let reference = at("bert-reference");
    let found = compared(&reference, &at("bert-modules"));
    assert!(found.is_same(), "{:?}", wrong_parts(&found));
    let pair = |own: &str, other: &str| (format!("bert.{own}"), format!("bert.{other}"));
    for own in [
        pair("embeddings.LayerNorm.out", "embeddings.out"),
        pair(
            "encoder.layer.0.attention.output.LayerNorm.out",
            "encoder.layer.0.attention.output.out",
        ),
    ] {
        assert!(found.matches.contains(&own), "{:?}", found.matches);
    }
    let found = compared(&reference, &at("bert-token-type"));
    assert_eq!(wrong_parts(&found), ["bert.embeddings.LayerNorm.out"]);
    let told =
        "it reads bert.embeddings.word_embeddings.out + bert.embeddings.position_embeddings.out";
    assert!(summaries(&found)[0].starts_with(told), "{:?}", summaries(&found));
}

/// The tensors of the reference's modules, under the names that are given to some of them.
fn of_reference(reference: &str, named: &[(&str, &str)]) -> HashMap<String, Tensor> {
    let bundle = Bundle::open(&at(reference).join("parts.safetensors")).expect("opens");
    let tensor = |name: &str| bundle.tensor(name).expect("reads").expect("is there");
    named.iter().map(|(own, name)| ((*name).to_owned(), tensor(own))).collect()
}

fn saved(tensors: &HashMap<String, Tensor>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("port.safetensors");
    candle_core::safetensors::save(tensors, &path).expect("written");
    (folder, path)
}

/// Other libraries call them otherwise, and their width tells what they are.
#[test]
fn logits_of_any_name_are_compared() {
    let layer = ("model.layers.2.out", "layers.2");
    for name in [
        "output",
        "output_layer",
        "transformer.output_layer",
        "head",
        "score",
        "predictions",
        "decoder.output_projection",
        "cls.decoder",
        "out",
    ] {
        let mut port = of_reference("llama-reference", &[layer, ("lm_head.out", name)]);
        let (_folder, path) = saved(&port);
        let found = compared(&at("llama-reference"), &path);
        assert!(found.is_same() && found.compared() == 2, "{name}: {:?}", found.left_over);
        let wrong = (port[name].clone() * 1.5).expect("numbers");
        port.insert(name.to_owned(), wrong);
        let (_folder, path) = saved(&port);
        let found = compared(&at("llama-reference"), &path);
        assert_eq!(wrong_parts(&found), ["lm_head.out"], "{name}");
    }
    // Neither side says what it is.
    let port = of_reference(
        "bert-reference",
        &[
            ("bert.encoder.layer.0.output.LayerNorm.out", "layer_0"),
            ("cls.predictions.decoder.out", "out"),
        ],
    );
    let (_folder, path) = saved(&port);
    let found = compared(&at("bert-reference"), &path);
    assert!(found.is_same() && found.compared() == 2, "{:?}", found.left_over);
}

#[test]
fn what_is_compared_with_nothing_is_told() {
    let layer = ("model.layers.2.out", "layers.2");
    let mut port = of_reference("llama-reference", &[layer, ("lm_head.out", "logits")]);
    let cut = port["logits"].narrow(2, 0, 12).and_then(|own| own.contiguous()).expect("fits");
    port.insert("logits".to_owned(), cut);
    port.insert("router".to_owned(), Tensor::new(&[1_f32, 2.0], &Device::Cpu).expect("fits"));
    let (_folder, path) = saved(&port);
    let found = compared(&at("llama-reference"), &path);
    assert_eq!(found.left_over.right, ["logits", "router"]);
    assert_eq!(found.left_over.left[0], "lm_head.out");
    assert_eq!(found.left_over.left.len(), found.lines.len() - 1);
    // All that was compared is the same, and not all was.
    assert_eq!(found.verdict(), Verdict::Unchecked);
    assert_eq!(found.left_over.end, Some(["lm_head.out", "logits"].map(str::to_owned)));
}

/// What is called attention may end behind its norm, or before its projection.
#[test]
fn modules_of_other_names_stand_beside_what_they_give() {
    let layer = "bert.encoder.layer.0";
    for (port, own) in [
        ("bert-layers", "attention.output.LayerNorm.out"),
        ("bert-layers-inner", "attention.self.out"),
    ] {
        let found = compared(&at("bert-reference"), &at(port));
        assert!(found.is_same() && found.compared() == 4, "{port}: {:?}", found.matches);
        let beside = (format!("{layer}.{own}"), "encoder/layer_0/attention".to_owned());
        assert!(found.matches.contains(&beside), "{port}: {:?}", found.matches);
        assert!(found.left_over.right.is_empty(), "{port}: {:?}", found.left_over.right);
    }
}

/// The norm is right, and what it reads was not recorded.
#[test]
fn what_was_not_recorded_may_be_wrong() {
    let port = Bundle::open(&at("bert-layers").join("step0.safetensors")).expect("opens");
    let infos = port.infos().iter().map(|info| info.name.clone());
    let tensors =
        infos.map(|name| (name.clone(), port.tensor(&name).expect("reads").expect("is there")));
    let mut tensors: HashMap<String, Tensor> = tensors.collect();
    tensors.remove("cls");
    for (name, own) in &mut tensors {
        if name.starts_with("encoder") {
            *own = own.flip(&[2]).expect("numbers");
        }
    }
    let (_folder, path) = saved(&tensors);
    let found = compared(&at("bert-reference"), &path);
    let first = found.first.map(|at| found.lines[at].name.as_str());
    assert_eq!(first, Some("bert.encoder.layer.0.attention.output.LayerNorm.out"));
    let what = found.named.as_ref().map_or("", |named| named.what.as_str());
    assert_eq!(what, "norm, computed from the reference's inputs, as the port recorded none");
}

/// Some tensors of modules, without records of attentions and without parameters.
#[test]
fn mistakes_are_named_in_plain_dumps() {
    // Chunks of unequal lengths, with what nothing is beside.
    // The logits of all passes are compared, whatever they are called.
    let passes = compared(&at("llama-reference"), &at("llama-cache-of-another"));
    assert_eq!(wrong_parts(&passes)[..1], ["model.layers.1.self_attn.out"]);
    let norms = compared(&at("llama-reference"), &at("llama-norms-exchanged"));
    // The name says nothing, and the numbers do.
    let beside = ["model.layers.0.post_attention_layernorm.out", "layers.0.second"];
    let beside = (beside[0].to_owned(), beside[1].to_owned());
    assert!(norms.matches.contains(&beside), "{:?}", norms.matches);
    let chunks = compared(&at("llama-reference"), &at("llama-chunks"));
    assert!(chunks.is_same() && chunks.compared() > 6, "{:?}", wrong_parts(&chunks));
    assert!(compared(&at("bloom-reference"), &at("bloom-dense")).is_same());
    for (reference, port, first, mistake) in [
        (
            "llama-reference",
            "llama-without-norm",
            "lm_head.out",
            "it reads model.layers.2.out, not lm_head.in",
        ),
        (
            "llama-reference",
            "llama-up-of-another",
            "model.layers.2.mlp.out",
            "its parameter up_proj.weight holds the numbers of the reference's model.layers.1.mlp.up_proj.weight",
        ),
        (
            "cached-llama-reference",
            "llama-plain-steps",
            "model.layers.1.self_attn.out",
            "it reads v_past reversed along the batch axis",
        ),
        (
            "bloom-reference",
            "bloom-dense-unscaled",
            "transformer.h.1.self_attention.out_proj.out",
            "scale-missing",
        ),
        // The residual is in it.
        (
            "bloom-reference",
            "bloom-unscaled",
            "transformer.h.1.self_attention.out",
            "scale-missing",
        ),
        (
            "qwen2-once-reference",
            "qwen2-unordered-bias",
            "model.layers.0.self_attn.out",
            "q, k: its bias is not put in the order of pairs",
        ),
        (
            "llama-reference",
            "llama-norms-exchanged",
            "model.layers.1.input_layernorm.out",
            "its parameters are those of model.layers.1.post_attention_layernorm",
        ),
        (
            "cached-llama-reference",
            "llama-cache-of-another",
            "model.layers.1.self_attn.out",
            "pass 1 of its cache reads the keys and values of model.layers.0.self_attn, another layer",
        ),
        (
            "bert-reference",
            "bert-normed-alone",
            "bert.encoder.layer.0.attention.output.LayerNorm.out",
            "it is the norm of bert.encoder.layer.0.attention.output.dense.out alone, and bert.embeddings.LayerNorm.out is added behind it",
        ),
    ] {
        let found = compared(&at(reference), &at(port));
        assert_eq!(found.first.map(|at| found.lines[at].name.as_str()), Some(first), "{port}");
        let told = summaries(&found);
        assert!(told.iter().any(|told| told.contains(mistake)), "{port}: {told:?}");
    }
}

/// Passes of a cache of which attention's inputs and outputs alone were recorded, beside one pass.
#[test]
fn mistakes_of_decoding_are_named_without_records() {
    for (reference, port, layer, mistake) in [
        ("llama", "llama-overwritten", 1, "as if it had been overwritten"),
        ("llama", "llama-rotated-again", 1, "the operation of q_rot is applied to k_past"),
        ("padded-llama", "llama-maskless-steps", 0, "mask-padding-missing"),
    ] {
        let found = compared(&at(&format!("{reference}-reference")), &at(port));
        assert_eq!(found.first.and_then(|at| found.lines[at].layer), Some(layer), "{port}");
        let told = summaries(&found);
        assert!(told.iter().any(|told| told.contains(mistake)), "{port}: {told:?}");
    }
}

#[test]
fn tokens_are_aligned_by_their_ids() {
    let padded = compared(&at("llama-reference"), &at("llama-padded")).aligned.expect("aligned");
    assert_eq!(
        padded,
        "tokens aligned by their ids, padding stands elsewhere: 8 of 8 tokens are compared"
    );
    let cache = compared(&at("llama-reference"), &at("llama-cache")).aligned.expect("aligned");
    assert_eq!(
        cache,
        "tokens aligned by their ids, 3 passes beside one: 8 of 8 tokens are compared"
    );
}

#[test]
fn steps_of_a_cache_stand_beside_one_pass_or_the_same_steps() {
    for (left, right) in [("llama-cache", "llama-eager"), ("llama-cache", "llama-cache")] {
        let found = compared(&at(left), &at(right));
        assert!(found.is_same() && found.compared() >= 20, "{right}: {}", found.compared());
    }
    let found = compared(&at("llama-cache"), &at("llama-gelu"));
    assert_eq!(found.first.map(|at| found.lines[at].name.as_str()), Some("model.layers.1.mlp.out"));
}

/// Decoding in 16 bits beside the same steps in f32: each pass is checked with its own inputs and what is cached.
#[test]
fn rounding_of_cached_steps_in_few_bits_is_no_mistake() {
    let found = compared(&at("qwen2-reference"), &at("qwen2-f16"));
    assert!(found.is_same(), "{:?} {:?}", wrong_parts(&found), summaries(&found));
    let found = compared(&at("qwen2-reference"), &at("qwen2-f16-other-layer"));
    let first = found.first.map(|at| found.lines[at].name.as_str());
    assert_eq!(first, Some("model.layers.1.self_attn.out"));
    let told = summaries(&found);
    let is_told =
        |own: &String| own.contains("the cached keys are those of model.layers.0.self_attn");
    assert!(told.iter().any(is_told), "{told:?}");
}

#[test]
fn the_first_wrong_part_is_found_and_its_mistake_named() {
    for (reference, port, name, layer, mistake) in [
        (
            "llama",
            "eps",
            "model.layers.1.post_attention_layernorm.out",
            1,
            "eps is 0.001 where 1e-6 was meant",
        ),
        (
            "llama",
            "one-more",
            "model.layers.2.input_layernorm.out",
            2,
            "the weight is 1 + w in place of w",
        ),
        (
            "llama",
            "gelu",
            "model.layers.1.mlp.out",
            1,
            "the gate goes through GELU, not through SiLU",
        ),
        (
            "llama",
            "swapped",
            "model.layers.1.mlp.out",
            1,
            "mlp_up and mlp_gate change places in it",
        ),
        ("llama", "scale", "model.layers.1.self_attn.out", 1, "scale-sqrt-d-model: "),
        ("llama", "transposed", "model.layers.0.self_attn.out", 0, "weight-transposed-o: "),
        (
            "llama",
            "not-written",
            "model.layers.1.self_attn.out",
            1,
            "the slots of the new tokens hold what stands before them",
        ),
        (
            "llama",
            "other-item",
            "model.layers.1.self_attn.out",
            1,
            "the slots of earlier tokens are those of the next item",
        ),
        (
            "llama",
            "scaled-cache",
            "model.layers.1.self_attn.out",
            1,
            "the cached values are those that earlier steps wrote times 1.300",
        ),
        (
            "gpt2",
            "gelu",
            "transformer.h.1.mlp.out",
            1,
            "the features go through GELU, not through GELU by tanh",
        ),
        ("gpt2", "bias", "transformer.h.0.mlp.out", 0, "the bias is not added"),
        (
            "mixtral",
            "router",
            "model.layers.1.mlp.out",
            1,
            "the weights of the experts that are chosen are not made up to 1",
        ),
        (
            "mixtral",
            "router-bf16",
            "model.layers.1.mlp.out",
            1,
            "the weights of the experts that are chosen are not made up to 1",
        ),
        ("smollm3", "rope", "model.layers.1.self_attn.out", 1, "rope is half where none was meant"),
        (
            "bloom",
            "residual",
            "transformer.h.1.self_attention.out",
            1,
            "its module adds it to transformer.h.1.input_layernorm.out",
        ),
    ] {
        let found =
            compared(&at(&format!("{reference}-reference")), &at(&format!("{reference}-{port}")));
        let first = found.first.map(|at| &found.lines[at]).expect("a wrong part");
        assert_eq!((first.name.as_str(), first.layer), (name, Some(layer)), "{port}");
        assert!(first.inherited <= Some(first.tolerance), "{port}: {first:?}");
        let said = summaries(&found);
        assert!(said.iter().any(|said| said.contains(mistake)), "{port}: {said:?}");
        // What is behind it inherits the error, and is not accused.
        let wrong = found.lines.iter().filter(|line| line.is_wrong).count();
        assert_eq!(wrong, 1, "{port}");
        assert!(!found.is_same());
    }
}

/// What else ports were made wrong by: norms in f16, biases, experts, positions, and what a cache holds at its second step. The
/// reference, the port, its first wrong part, and what is said of it.
const PORTS: &[(&str, &str, &str, &str)] = &[
    (
        "gpt2-reference",
        "gpt2-unbiased",
        "transformer.h.1.ln_2.out",
        "it divides by the unbiased standard deviation",
    ),
    (
        "large-llama-reference",
        "large-llama-f16",
        "model.layers.0.input_layernorm.out",
        "2 of 8 rows are 0: those with a number above 255.9, whose square is more than f16 holds",
    ),
    (
        "qwen2-once-reference",
        "qwen2-late-bias",
        "model.layers.1.self_attn.out",
        "b_k is added behind the rotation, and is not turned",
    ),
    (
        "opt-reference",
        "opt-unscaled-bias",
        "model.decoder.layers.1.self_attn.out",
        "b_q is added behind the scaling, and is not scaled",
    ),
    (
        "qwen2-moe-reference",
        "qwen2-moe-raw-gate",
        "model.layers.1.mlp.out",
        "the gate of the shared expert is used without its sigmoid",
    ),
    (
        "qwen2-moe-reference",
        "qwen2-moe-shared-twice",
        "model.layers.1.mlp.out",
        "the shared expert is added 2 times",
    ),
    (
        "mixtral-reference",
        "mixtral-weighed-inputs",
        "model.layers.1.mlp.out",
        "the weights of experts multiply what goes into these, not what they give",
    ),
    (
        "olmo2-reference",
        "olmo2-ranks",
        "model.layers.0.self_attn.out",
        "the norm runs over the heads of each of 2 ranks",
    ),
    (
        "wide-llama-reference",
        "wide-llama-scale",
        "model.layers.0.self_attn.out",
        "the scores are divided by √heads instead of √d_k",
    ),
    (
        "gpt2-reference",
        "gpt2-counted",
        "transformer.wpe.out",
        "it reads rows 2, 3, 4, 5, 2, 3, 4, 5 of transformer.wpe where 0, 1, 2, 3, 0, 1, 2, 3 are meant",
    ),
    (
        "gpt2-steps-reference",
        "gpt2-steps-maskless",
        "transformer.h.0.attn.out",
        "the mask is built and never applied",
    ),
    (
        "llama-reference",
        "llama-packed",
        "model.layers.0.self_attn.out",
        "the documents of a packed row see each other",
    ),
    (
        "llama-steps-reference",
        "llama-steps-counted",
        "model.layers.0.self_attn.out",
        "positions count the padding before the tokens: 2 where 1 is meant",
    ),
    (
        "qwen3-steps-reference",
        "qwen3-steps-unturned",
        "model.layers.1.self_attn.out",
        "at step 1 of its cache, the cached keys are those before the rotation",
    ),
    (
        "cached-llama-reference",
        "llama-empty-slot",
        "model.layers.1.self_attn.out",
        "query 0 of item 0 sees 4 keys, and the reference's sees 3: slot 2 of its cache is 0",
    ),
    (
        "cached-llama-reference",
        "llama-preallocated",
        "model.layers.1.self_attn.out",
        "empty slots of the cache, behind the new tokens, are attended to",
    ),
    (
        "cached-llama-reference",
        "llama-without-oldest",
        "model.layers.1.self_attn.out",
        "at step 1 of its cache, query 0 of item 0 sees 2 keys, and the reference's sees 3",
    ),
    (
        "cached-llama-reference",
        "llama-turned-again",
        "model.layers.1.self_attn.out",
        "at step 1 of its cache, the cached keys are turned once more",
    ),
    (
        "cached-llama-reference",
        "llama-of-other-items",
        "model.layers.1.self_attn.out",
        "the cached values are those of other items: item 0 has those of item 1, item 1 has those of item 0",
    ),
    (
        "cached-llama-reference",
        "llama-cut-off",
        "model.layers.1.self_attn.out",
        "the cached values are those that earlier steps wrote, cut off at 1.033 in 1 heads",
    ),
    (
        "cached-llama-reference",
        "llama-rolled",
        "model.layers.1.self_attn.out",
        "slot 0 of item 1 has what was written to slot 1 of item 1",
    ),
];

#[test]
fn mistakes_of_ports_are_named() {
    for (reference, port, name, mistake) in PORTS {
        let found = compared(&at(reference), &at(port));
        let first = found.first.map(|at| &found.lines[at]).expect("a wrong part");
        assert_eq!(first.name, *name, "{port}");
        let said = summaries(&found);
        assert!(said.iter().any(|said| said.contains(mistake)), "{port}: {said:?}");
    }
}

#[test]
fn a_wrong_residual_sum_is_told_by_its_terms() {
    let found = compared(&at("llama-reference"), &at("llama-residual"));
    let first = found.first.map(|at| &found.lines[at]).expect("a wrong part");
    assert_eq!((first.part, first.layer, first.how), (ModelPart::Layer, Some(1), How::Recomputed));
    assert_eq!(
        found.named.expect("told").what,
        "in the reference it is model.layers.1.post_attention_layernorm.in + model.layers.1.mlp.out, and in the port \
         model.layers.0.out + model.layers.1.mlp.out"
    );
}

#[test]
fn parameters_that_are_not_the_references_are_told() {
    let found = compared(&at("llama-reference"), &at("llama-transposed"));
    assert_eq!(
        found.named.expect("told").facts,
        ["its parameter w_o is the reference's, transposed"]
    );
}

/// The tensors of a file under other names, in one that says nothing else of them.
fn renamed(from: &Path, to: &Path, rename: impl Fn(&str) -> Option<String>) {
    let mut bundle = Bundle::open(from).expect("opens");
    let count = bundle.infos().len();
    let entries = (0..count).map(|at| bundle.entry(at).expect("reads"));
    let tensors: HashMap<String, Tensor> =
        entries.filter_map(|entry| Some((rename(&entry.name)?, entry.tensor))).collect();
    candle_core::safetensors::save(&tensors, to).expect("written");
}

/// A recording of ranks without records of attentions, with those tensors alone that are kept.
fn parts_of_ranks(recording: &str, is_kept: impl Fn(&str) -> bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |rank: usize| fixtures("ranks").join(recording).join(format!("rank{rank}"));
    for from in (0..).map(path).take_while(|from| from.exists()) {
        let to = folder.path().join(from.file_name().expect("a name"));
        std::fs::create_dir(&to).expect("made");
        let parts = from.join("parts.safetensors");
        let kept = |name: &str| is_kept(name).then(|| name.to_owned());
        renamed(&parts, &to.join("parts.safetensors"), kept);
    }
    folder
}

/// As Flax might name them; what goes into modules is not recorded.
fn in_flax(name: &str) -> Option<String> {
    let inner = name.strip_suffix(".out")?.strip_prefix("model.").unwrap_or("head/logits");
    let inner = inner.replace("layers.", "layers_").replace('.', "/");
    let words = [
        ("input_layernorm", "pre_attention_norm"),
        ("post_attention_layernorm", "pre_mlp_norm"),
        ("self_attn", "attention"),
        ("mlp", "feed_forward"),
        ("embed_tokens", "embedder"),
    ];
    Some(words.iter().fold(inner, |name, (own, other)| name.replace(own, other)))
}

/// As `MaxText` names them: its norm behind attention is the one before the MLP.
fn in_maxtext(name: &str) -> Option<String> {
    let inner = name.strip_suffix(".out")?.strip_prefix("model.").unwrap_or("logits");
    let inner = inner.replace("layers.", "layers_").replace('.', "/");
    let words = [
        ("post_attention_layernorm", "post_self_attention_norm"),
        ("input_layernorm", "pre_self_attention_norm"),
        ("self_attn", "self_attention"),
        ("embed_tokens", "token_embedder"),
    ];
    Some(words.iter().fold(inner, |name, (own, other)| name.replace(own, other)))
}

#[test]
fn norms_of_other_names_are_matched_by_their_place() {
    let folder = tempfile::tempdir().expect("a folder");
    for (port, layer) in [("llama-reference", None), ("llama-eps", Some(1))] {
        let path = folder.path().join("maxtext.safetensors");
        renamed(&at(port).join("parts.safetensors"), &path, in_maxtext);
        let found = compared(&at("llama-reference"), &path);
        assert_eq!(found.first.and_then(|at| found.lines[at].layer), layer, "{port}");
        assert!(found.is_same() == layer.is_none(), "{port}: {:?}", found.warning);
        let beside = ("model.layers.0.input_layernorm.out", "layers_0/pre_self_attention_norm");
        let beside = (beside.0.to_owned(), beside.1.to_owned());
        assert!(found.matches.contains(&beside), "{port}: {:?}", found.matches);
    }
}

/// As GPT-2 is named in Flax, where `embed` is words and positions together.
fn gpt2_in_flax(name: &str) -> Option<String> {
    if name == "transformer.h.0.in" {
        return Some("embed".to_owned());
    }
    let inner = name.strip_suffix(".out")?;
    let inner = inner.strip_prefix("transformer.").unwrap_or("logits");
    let is_word = inner.starts_with("wte") || inner.starts_with("wpe");
    (!is_word).then(|| inner.replace("h.", "h_").replace('.', "/"))
}

/// What stands beside another tensor by its name, and has other numbers though all behind it agrees, is something else.
#[test]
fn embeddings_of_one_name_may_be_others() {
    let folder = tempfile::tempdir().expect("a folder");
    for (port, wrong) in [
        ("gpt2-reference", None),
        ("gpt2-gelu", Some("transformer.h.1.mlp.out")),
        ("gpt2-unbiased", Some("transformer.h.1.ln_2.out")),
    ] {
        let path = folder.path().join("flax.safetensors");
        renamed(&at(port).join("parts.safetensors"), &path, gpt2_in_flax);
        let found = compared(&at("gpt2-reference"), &path);
        let first = found.first.map(|at| found.lines[at].name.as_str());
        assert_eq!(first, wrong, "{port}");
        let beside = ("transformer.h.0.in".to_owned(), "embed".to_owned());
        assert!(found.matches.contains(&beside), "{port}: {:?}", found.matches);
        let told = summaries(&found);
        let is_told = told.iter().any(|own| own.contains("the unbiased standard deviation"));
        assert_eq!(is_told, port == "gpt2-unbiased", "{told:?}");
        // The same, where nothing of the reference has its numbers.
        let mut tensors = candle_core::safetensors::load(&path, &Device::Cpu).expect("reads");
        let embed = tensors.get_mut("embed").expect("there");
        *embed = (&*embed * 3.0).expect("numbers");
        candle_core::safetensors::save(&tensors, &path).expect("written");
        let found = compared(&at("gpt2-reference"), &path);
        assert_eq!(found.first.map(|at| found.lines[at].name.as_str()), wrong, "{port}");
    }
}

/// Tensors of the port's modules with tokens before the items of the batch, as Megatron has them, and as rows of both.
#[test]
fn tokens_may_come_before_items() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("port.safetensors");
    for (port, wrong) in [("llama-eager", vec![]), ("llama-gelu", vec!["model.layers.1.mlp.out"])] {
        for in_rows in [false, true] {
            let from = at(port).join("parts.safetensors");
            let mut tensors = candle_core::safetensors::load(&from, &Device::Cpu).expect("reads");
            for tensor in tensors.values_mut().filter(|tensor| tensor.rank() == 3) {
                let turned = tensor.transpose(0, 1).and_then(|own| own.contiguous());
                let rows = |own: Tensor| if in_rows { own.flatten(0, 1) } else { Ok(own) };
                *tensor = turned.and_then(rows).expect("turned");
            }
            candle_core::safetensors::save(&tensors, &path).expect("written");
            let found = compared(&at("llama-reference"), &path);
            assert_eq!(wrong_parts(&found), wrong, "{port}");
            let told = summaries(&found);
            let is_named = told.iter().any(|told| told.contains("GELU"));
            assert_eq!(is_named, !wrong.is_empty(), "{told:?}");
            let is_told = |told: &String| told.contains("tokens before the items");
            assert!(found.ranks.iter().any(is_told), "{:?}", found.ranks);
        }
    }
}

/// Branches that are to stand beside each other, and layers that are loaded from others.
#[test]
fn what_a_step_or_a_layer_is_instead_is_named() {
    let found = compared(&at("phi-reference"), &at("phi-in-sequence"));
    assert_eq!(wrong_parts(&found), ["model.layers.1.mlp.in"]);
    let told = found.named.map(|named| named.what);
    let made = "and in the port model.layers.1.input_layernorm(model.layers.0.out + model.layers.1.self_attn.out)";
    assert!(told.as_ref().is_some_and(|told| told.ends_with(made)), "{told:?}");
    let found = compared(&at("llama-reference"), &at("llama-shifted"));
    let told = summaries(&found);
    let all = "all parameters of the layers 1 to 2 are those of the reference's layers 0 to 1";
    assert!(told.iter().any(|told| told == all), "{told:?}");
}

#[test]
fn modules_of_other_names_are_matched_by_order_and_width() {
    let folder = tempfile::tempdir().expect("a folder");
    for (port, layer) in
        [("llama-eager", None), ("llama-gelu", Some(1)), ("llama-one-more", Some(2))]
    {
        let path = folder.path().join("flax.safetensors");
        renamed(&at(port).join("parts.safetensors"), &path, in_flax);
        let found = compared(&at("llama-reference"), &path);
        assert_eq!(found.first.and_then(|at| found.lines[at].layer), layer, "{port}");
        assert_eq!(found.compared(), 18, "{port}");
        let beside = ("model.layers.0.mlp.out".to_owned(), "layers_0/feed_forward".to_owned());
        assert!(found.matches.contains(&beside), "{port}: {:?}", found.matches);
    }
    // Where neither says what reads what, the order of layers and parts does.
    let (left, right) = (folder.path().join("a.safetensors"), folder.path().join("b.safetensors"));
    renamed(&at("llama-eager").join("parts.safetensors"), &left, in_flax);
    renamed(&at("llama-gelu").join("parts.safetensors"), &right, in_flax);
    let found = compared(&left, &right);
    let first = found.first.map(|at| &found.lines[at]).expect("a wrong part");
    assert_eq!((first.part, first.layer), (ModelPart::Mlp, Some(1)));
    renamed(&at("llama-reference").join("parts.safetensors"), &right, in_flax);
    assert!(compared(&left, &right).is_same());
}

#[test]
fn what_cannot_be_compared_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |left: &Path, right: &Path| {
        let error = by_layer(left, right, None, &Tolerances::default()).expect_err("refused");
        format!("{error}")
    };
    let empty = refused(folder.path(), &at("llama-eager"));
    assert!(empty.contains("is a folder without files of tensors"), "{empty}");
    let record = at("llama-reference").join("model.layers.0.self_attn.safetensors");
    let alone = refused(&record, &record);
    assert!(alone.contains("holds no tensor that a part of a model gave"), "{alone}");
    let path = folder.path().join("other.safetensors");
    let narrow =
        Tensor::ones((2, 5), candle_core::DType::F32, &candle_core::Device::Cpu).expect("fits");
    candle_core::safetensors::save(&HashMap::from([("layers.0.out", narrow)]), &path)
        .expect("written");
    let strangers = refused(&at("llama-reference"), &path);
    assert!(
        strangers.contains("no part of it is beside one of the other recording"),
        "{strangers}"
    );
}

#[test]
fn other_tokens_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("other.safetensors");
    let mut bundle = Bundle::open(&at("llama-eager").join("parts.safetensors")).expect("opens");
    let count = bundle.infos().len();
    let entries = (0..count).map(|at| bundle.entry(at).expect("reads"));
    let other = |name: &str, tensor: Tensor| match name {
        "input_ids" => (tensor + 1.0).expect("numbers"),
        _ => tensor,
    };
    let tensors: HashMap<String, Tensor> =
        entries.map(|entry| (entry.name.clone(), other(&entry.name, entry.tensor))).collect();
    candle_core::safetensors::save(&tensors, &path).expect("written");
    let found = compared(&at("llama-reference"), &path);
    let warning = found.warning.clone().expect("told");
    assert_eq!(
        warning,
        "the two were not called with the same tokens: they differ first in item 0, at token 0"
    );
    assert!(!found.is_same());
}

fn ranks(name: &str) -> ByLayer {
    compared(&fixtures("ranks").join("reference"), &fixtures("ranks").join(name))
}

/// Heads, tokens and layers of several ranks are joined, keys of few heads that ranks share, and chunks in another order, too.
#[test]
fn right_ranks_are_joined_and_not_accused() {
    for (name, count) in
        [("heads", 2), ("heads-4", 4), ("tokens", 2), ("tokens-zigzag", 2), ("stages", 2)]
    {
        let found = ranks(name);
        let wrong = wrong_parts(&found);
        assert!(found.is_same() && wrong.is_empty(), "{name}: {wrong:?}");
        assert_eq!(found.compared(), 15, "{name}");
        assert!(found.ranks[0].starts_with(&count.to_string()), "{name}: {:?}", found.ranks);
    }
}

#[test]
fn weights_of_a_ranks_own_experts_are_told() {
    let found = compared(&at("mixtral-reference"), &at("mixtral-by-ranks"));
    let told = summaries(&found);
    let is_told = |told: &String| told.contains("are made up to 1 on each of 2 ranks by itself");
    assert!(told.iter().any(is_told), "{told:?}");
}

/// What each rank adds to a sum in bf16 is rounded by itself.
#[test]
fn partial_sums_in_16_bits_are_as_exact_as_these() {
    let found =
        compared(&fixtures("ranks").join("reference-bf16"), &fixtures("ranks").join("heads-bf16"));
    assert!(found.is_same() && found.compared() == 15, "{:?}", wrong_parts(&found));
}

/// Where no parameters tell it, what the ranks give does.
#[test]
fn a_matrix_that_was_cut_as_one_is_told_without_parameters() {
    let folder = parts_of_ranks("heads-fused", |name| !name.ends_with("weight"));
    let found = compared(&fixtures("ranks").join("reference"), folder.path());
    let told = summaries(&found);
    assert!(told.iter().any(|told| told.contains("is cut over the ranks as one")), "{told:?}");
}

/// Where nothing of the attention was recorded but what it gives.
#[test]
fn key_heads_of_other_ranks_are_named_by_ranks() {
    let folder = parts_of_ranks("heads-kv", |_| true);
    let found = compared(&fixtures("ranks").join("reference"), folder.path());
    let told = summaries(&found);
    assert_eq!(told, ["of 2 key heads, rank r of 4 has head r % 2, where r // 2 is meant"]);
}

/// What went into a later part of a stage is not what the stage got.
#[test]
fn a_stage_whose_input_was_not_recorded_is_not_accused() {
    let folder = parts_of_ranks("stages", |name| name != "model.layers.0.in");
    let found = compared(&fixtures("ranks").join("reference"), folder.path());
    assert!(found.is_same() && found.warning.is_none(), "{:?}", found.warning);
}

/// Partial sums of attentions that are all wrong, and queries and values that modules within one gave.
#[test]
fn what_ranks_do_wrong_is_named_in_plain_dumps() {
    for (name, layer, mistake) in [
        (
            "heads-partial-kv",
            0,
            "of 2 key heads, rank r of 4 has head r % 2, where r // 2 is meant",
        ),
        ("heads-values", 1, "v: it is the first half of the feature axis twice"),
    ] {
        let found = ranks(name);
        let first = found.first.map(|at| found.lines[at].name.clone());
        assert_eq!(first, Some(format!("model.layers.{layer}.self_attn.out")), "{name}");
        let said = summaries(&found);
        assert!(said.iter().any(|said| said.contains(mistake)), "{name}: {said:?}");
    }
}

/// No sum between parts is recorded, and none that a stage is handed.
#[test]
fn what_ranks_do_wrong_is_named_by_what_modules_give() {
    let is_given = |name: &str| {
        let inner = name.strip_prefix("model.layers.").map(|rest| &rest[1..]);
        is_output(name) && inner != Some(".out")
    };
    for (recording, wrong, mistake) in [
        (
            "heads-alone",
            "model.layers.1.self_attn.out",
            "each rank goes on with its own partial sums of model.layers.1.self_attn.out",
        ),
        (
            "stages-mlp",
            "model.layers.1.input_layernorm.out",
            "it reads model.layers.0.mlp.out, not model.layers.0.out",
        ),
    ] {
        let folder = parts_of_ranks(recording, is_given);
        let found = compared(&fixtures("ranks").join("reference"), folder.path());
        let first = found.first.map(|at| found.lines[at].name.as_str());
        assert_eq!(first, Some(wrong), "{recording}: {:?}", wrong_parts(&found));
        let said = summaries(&found);
        assert!(said.iter().any(|said| said.contains(mistake)), "{recording}: {said:?}");
    }
}

#[test]
fn what_ranks_do_wrong_is_named() {
    for (name, wrong, mistake) in [
        ("heads-bias", "model.layers.1.self_attn.out", "each of the 2 ranks adds b_o"),
        ("heads-twice", "model.layers.1.self_attn.out", "it is 2 times what it should be"),
        (
            "heads-alone",
            "model.layers.1.self_attn.out",
            "each rank goes on with its own partial sums of model.layers.1.self_attn.out",
        ),
        (
            "heads-heads",
            "model.layers.1.self_attn.out",
            "the ranks hold the pieces 1, 0 of the reference's b_q, w_q",
        ),
        ("heads-kv", "model.layers.1.self_attn.out", "the ranks hold the pieces 0, 1, 0, 1 of b_k"),
        (
            "heads-packed",
            "model.layers.1.self_attn.out",
            "the matrix of queries, keys and values, one behind the other, is cut over the ranks as one",
        ),
        ("heads-words", "lm_head.out", "put together in the order 1, 0"),
        (
            "tokens-left-out",
            "model.layers.1.self_attn.out",
            "of 2 ranks with a chunk of tokens each, rank 1 never sees the keys of rank 0",
        ),
        (
            "tokens-positions",
            "model.layers.1.self_attn.out",
            "counts the positions of its tokens from 0",
        ),
        (
            "stages-handed",
            "model.layers.1.in",
            "stage 1 got model.layers.0.post_attention_layernorm.in, and stage 0 was to give",
        ),
        (
            "stages-mlp",
            "model.layers.1.in",
            "stage 1 got model.layers.0.mlp.out, and stage 0 was to give model.layers.0.out",
        ),
        (
            "heads-one",
            "model.layers.1.mlp.out",
            "all ranks should have the same model.layers.1.mlp.out, and rank 1 has another one",
        ),
        (
            "heads-fused",
            "model.layers.1.mlp.out",
            "rank 0 of gate_proj.weight alone, rank 1 of up_proj.weight alone",
        ),
        (
            "heads-kv-kernel",
            "model.layers.1.self_attn.out",
            "the ranks hold the pieces 0, 1, 0, 1 of k_rot, v_heads, where 0, 0, 1, 1 are those",
        ),
        (
            "heads-vocabulary",
            "model.embed_tokens.out",
            "each of the 2 ranks adds a row of its own for the words of other ranks, too",
        ),
        (
            "permuted/rank0",
            "model.layers.0.self_attn.out",
            "its projection is put in the order of neighbouring pairs with the number of query heads (4)",
        ),
        (
            "tokens-mean",
            "model.layers.1.self_attn.out",
            "every block has its own softmax, and the blocks are averaged (blocks of 4 keys), in query rows 4 to 7",
        ),
        (
            "tokens-zigzag-gathered",
            "model.layers.1.self_attn.out",
            "keys and values stay in the zigzag order of 2 ranks",
        ),
        (
            "heads-edge",
            "model.embed_tokens.out",
            "just the rows of words 7 are off, the first of those that a rank has",
        ),
        (
            "tokens-zigzag-counted",
            "model.layers.1.self_attn.out",
            "positions are counted on from rank to rank",
        ),
        (
            "tokens-zigzag-chunk",
            "model.layers.1.self_attn.out",
            "in zigzag order, rank 1 never sees the keys of chunk 0",
        ),
    ] {
        let found = ranks(name);
        let first = found.first.map(|at| &found.lines[at]).expect("a wrong part");
        assert_eq!(first.name, wrong, "{name}");
        let said = summaries(&found);
        assert!(said.iter().any(|said| said.contains(mistake)), "{name}: {said:?}");
    }
}

#[test]
fn ranks_that_are_not_as_stated_are_refused() {
    let (left, right) = (fixtures("ranks").join("reference"), fixtures("ranks").join("heads"));
    let stated = |text: &str| text.parse::<Unshard>().expect("stated");
    let compared = |right: &Path, text: &str| {
        by_layer(&left, right, Some(stated(text)), &Tolerances::default())
    };
    assert!(compared(&right, "heads=2").expect("two ranks").is_same());
    let error = compared(&right, "heads=4").expect_err("refused").to_string();
    assert!(error.contains("holds 2 ranks where 4 are stated"), "{error}");
    let error = compared(&left, "heads=4").expect_err("refused").to_string();
    assert!(error.contains("is no recording of several ranks"), "{error}");
    assert!("layers=2".parse::<Unshard>().is_err() && "heads=1".parse::<Unshard>().is_err());
}
