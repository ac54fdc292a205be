#![no_main]

//! Files of masks, of padded keys and of positions.

use std::path::Path;

use mha_trace::file::Bundle;
use mha_trace::{Settings, Sources, key_mask_rows, positions_of};
use mha_trace_fuzz::{fuzz, npy, run, told, written};

fn mask(bytes: &[u8]) {
    let place = written("mask.npy", bytes).display().to_string();
    let key_mask = told(key_mask_rows(&place));
    let positions = told(positions_of(&place));
    let bundle = told(Bundle::from_bytes(Path::new("mask.npy"), bytes.to_vec()));
    let mask = bundle.and_then(|bundle| told(bundle.tensor("")).flatten());
    for (batch, kv_len) in [(None, None), (Some(2), None), (None, Some(3))] {
        let own = Settings { batch, kv_len, ..Settings::default() };
        if let Some(mask) = &mask {
            let settings = Settings { attn_mask: Some(place.as_str().into()), ..own.clone() };
            run(&settings, Sources::default().with_mask(mask.clone()));
        }
        run(&Settings { key_mask: key_mask.clone(), ..own.clone() }, Sources::default());
        run(&Settings { positions: positions.clone(), ..own }, Sources::default());
    }
}

fuzz!(mask, npy);
