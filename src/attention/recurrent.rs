//! The delta rule in place of softmax: keys and values are written into a state, from which queries read.

use super::{Builder, normalize};
use base::error::Result;
use config::{Config, End, Packed, Recurrence};
use program::{Axes, Delta, DeltaForm, DeltaStage, Heads, Name, Program, Scaling};

/// The program of a run that has a recurrence ("Gated Delta Networks", Yang et al., 2024, section 3): what is left of the state
/// at every token, what each token writes into it, and what its query reads.
pub(super) fn recurrent(mut p: Builder, recurrence: Recurrence) -> Result<Program> {
    let Config { sizes, plain, .. } = p.config;
    let [mut queries, mut keys] = [Name::QHeads, Name::KHeads].map(|name| p.given(name));
    let values = p.given(Name::VHeads);
    let gate = (recurrence != Recurrence::Delta).then(|| p.gate(recurrence));
    let beta = p.given(Name::Beta);
    let initial = p.outside.contains_key(&Name::InitialState);
    let initial = initial.then(|| p.given(Name::InitialState));

    if let Some(norm) = p.config.norm {
        queries = p.then(Name::QNorm, normalize(&norm, plain), &[queries])?;
        keys = p.then(Name::KNorm, normalize(&norm, plain), &[keys])?;
    }
    let scale = match plain.scale {
        Some(factor) => Scaling::By { factor },
        None => Scaling::Root { head_dim: sizes.head_dim, terms: 1 },
    };
    queries = p.then(Name::QScaled, scale, &[queries])?;
    let times = sizes.value_heads() / sizes.heads.max(1);
    if times > 1 {
        let repeat = Heads::Repeat { times, is_tiled: false };
        queries = p.then(Name::QRepeated, repeat.clone(), &[queries])?;
        keys = p.then(Name::KRepeated, repeat, &[keys])?;
    }
    let decay = match gate {
        Some(gate) => Some(p.then(Name::Decay, Scaling::Exp { factor: 1.0 }, &[gate])?),
        None => None,
    };
    let rest: Vec<usize> = decay.into_iter().chain(initial).collect();
    let delta = |stage| Delta {
        stage,
        spans: spans(p.config),
        is_gated: decay.is_some(),
        has_initial: initial.is_some(),
        form: DeltaForm::Tokens(None),
    };
    let own = [DeltaStage::Written, DeltaStage::States, DeltaStage::Read, DeltaStage::Last];
    let [written_by, states_by, read_by, last_by] = own.map(&delta);
    let chunks_by = plain.state_chunk.map(|size| delta(DeltaStage::Chunks(size)));
    let read = |own: &[usize]| [own, &rest].concat();
    let written = p.then(Name::VNew, written_by, &read(&[values, keys, beta]))?;
    if plain.states {
        p.then(Name::States, states_by, &read(&[written, keys]))?;
    }
    if let Some(chunks_by) = chunks_by {
        p.then(Name::ChunkStates, chunks_by, &read(&[written, keys]))?;
    }
    p.then(Name::FinalState, last_by, &read(&[written, keys]))?;
    let outputs = p.then(Name::HeadOutputs, read_by, &read(&[queries, keys, written]))?;
    if p.config.end == End::Concat {
        p.then(Name::Concat, Heads::Merge, &[outputs])?;
    }
    Ok(p.program)
}

/// The tokens of each item that a state goes through: all, those of its length, or those of each document.
fn spans(config: &Config) -> Vec<Vec<(usize, usize)>> {
    let (batch, tokens) = (config.sizes.batch, config.sizes.own_keys);
    if let Some(Packed { keys, .. }) = &config.masks.segments {
        return keys.rows();
    }
    if let Some(rows) = &config.masks.key_mask {
        let span = |row: &String| {
            let from = row.find('1').unwrap_or(0);
            vec![(from, row.rfind('1').map_or(from, |last| last + 1))]
        };
        return rows.iter().map(span).collect();
    }
    match &config.plain.lengths {
        Some(lengths) => lengths.iter().map(|length| vec![(0, (*length).min(tokens))]).collect(),
        None => vec![vec![(0, tokens)]; batch],
    }
}

impl Builder<'_> {
    /// The logarithm of the decay: a number of each token and head, or of each key feature of these.
    fn gate(&mut self, recurrence: Recurrence) -> usize {
        let axes = self.axes(Name::G);
        let count = if recurrence == Recurrence::Kda { 4 } else { 3 };
        let axes = Axes::new(axes.iter().take(count).collect::<Vec<_>>());
        self.program.given(Name::G, axes)
    }
}
