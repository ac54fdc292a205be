//! From flags to a run.

use mha_trace::config::Settings;
use mha_trace::file::read_config;
use mha_trace::source::{Sources, key_mask_rows};
use mha_trace::{Result, Run};

use super::args::RunArgs;

impl RunArgs {
    /// The flags as settings.
    pub fn settings(&self) -> Result<Settings> {
        Ok(Settings {
            preset: self.preset,
            batch: self.batch,
            seq_len: self.seq_len,
            d_model: self.d_model,
            heads: self.heads,
            seed: self.seed,
            d_in: self.d_in,
            input: self.input,
            init: self.init,
            bias: (self.bias || self.no_bias).then_some(self.bias),
            mask: self.mask,
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
        })
    }

    /// The run that the flags, the config below them and the preset below that describe.
    pub fn run(&self) -> Result<Run> {
        let flags = self.settings()?;
        let (settings, sources) = if let Some(path) = &self.config {
            Sources::again(&read_config(path)?, &flags)?
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
