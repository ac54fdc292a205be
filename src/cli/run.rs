//! From flags to a run.

use std::path::Path;

use mha_trace::config::{RopeScaling, Settings, Tokens};
use mha_trace::file::{Record, read_config, read_json};
use mha_trace::source::{Sources, key_mask_rows};
use mha_trace::{Error, Result, Run};

use super::args::RunArgs;

impl RunArgs {
    /// The flags as settings.
    pub fn settings(&self) -> Result<Settings> {
        let settings = Settings {
            preset: self.preset,
            batch: self.batch,
            seq_len: self.seq_len,
            d_model: self.d_model,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            seed: self.seed,
            d_in: self.d_in,
            input: self.input,
            init: self.init,
            bias: (self.bias || self.no_bias).then_some(self.bias),
            qk_norm: self.qk_norm,
            qk_norm_eps: self.qk_norm_eps,
            rope: self.rope,
            rope_base: self.rope_base,
            rope_dims: self.rope_dims,
            rope_offset: self.rope_offset,
            rope_scaling: self.rope_scaling.as_deref().map(json_or_file).transpose()?,
            rope_freqs: self.rope_freqs.clone(),
            rope_attention_factor: self.rope_attention_factor,
            kv_len: self.kv_len,
            d_memory: self.d_memory,
            memory: self.memory.clone(),
            past: self.past.clone(),
            past_len: None,
            queries: self.queries,
            mask: self.mask,
            causal_align: self.causal_align,
            key_mask: self.key_mask.as_deref().map(key_mask).transpose()?,
            lengths: self.lengths.clone(),
            attn_mask: self.attn_mask.clone(),
            attn_mask_true: self.attn_mask_true,
            mask_fill: self.mask_fill,
            window: self.window,
            alibi: self.alibi.then_some(true),
            softcap: self.softcap,
            scale: self.scale,
            empty_rows: self.empty_rows,
            dropout: self.dropout,
            dtype: self.dtype,
            x: self.x.clone(),
            weights: self.weights.clone(),
            prefix: self.prefix.clone(),
            tokens: self.tokens.as_deref().map(tokens).transpose()?,
            memory_tokens: self.memory_tokens.as_deref().map(tokens).transpose()?,
            model_config: self.model_config.clone(),
            layer: self.layer,
        };
        settings.with_model()
    }

    /// The run that the flags, the config below them and the preset below that describe.
    pub fn run(&self) -> Result<Run> {
        let flags = self.settings()?;
        let (settings, sources) = if let Some(path) = &self.config {
            let record = read_config(path)?;
            let config = record.config.map(Settings::with_model).transpose()?;
            Sources::again(&Record { config, ..record }, &flags)?
        } else {
            let sources = Sources::load(&flags)?;
            (flags, sources)
        };
        Run::new(&settings, sources)
    }
}

/// `11,01,10` as rows, `none` as no rows, and anything else as a file.
fn key_mask(text: &str) -> Result<Vec<String>> {
    match text {
        "none" => Ok(Vec::new()),
        _ if text.chars().all(|c| matches!(c, '0' | '1' | ',')) => {
            Ok(text.split(',').map(str::to_owned).collect())
        }
        place => key_mask_rows(place),
    }
}

/// `the,cat,sat` as labels, and anything that ends like a JSON file as one.
fn tokens(text: &str) -> Result<Tokens> {
    if Path::new(text).extension().is_some_and(|extension| extension == "json") {
        return read_json(Path::new(text));
    }
    Ok(Tokens::Same(text.split(',').map(str::to_owned).collect()))
}

/// An object as JSON, or the file that holds it.
fn json_or_file(text: &str) -> Result<RopeScaling> {
    let text = if text.trim_start().starts_with('{') {
        text.to_owned()
    } else {
        read_json::<serde_json::Value>(Path::new(text))?.to_string()
    };
    text.parse().map_err(|what: String| {
        let fix = "give it as a checkpoint's config.json states it".to_owned();
        Error::Config { what: format!("rope_scaling: {what}"), fix }
    })
}
