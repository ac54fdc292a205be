//! The delta rule: what is computed of it, and what goes wrong there, token by token and in chunks.

use super::delta_slots::{ChunkDecay, ChunkSlip, ChunkState, ChunkUse};
use crate::misread::Misread;

/// A step of the delta rule ("Gated Delta Networks", Yang et al., 2024, equation 10; "Kimi Linear", 2025, equation 1). The
/// state S of a head is (key feature, value feature). Of every token, S′ = decay · S, u = β · (v − S′ᵀ k), S = S′ + k uᵀ, and
/// the output is Sᵀ q.
///
/// Values, keys, queries and u are (batch, head, token, feature), β (batch, head, token), the decay too, or with a number for
/// every key feature (batch, head, token, feature). States are (sequence, head, key feature, value feature).
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    /// What is computed.
    pub stage: DeltaStage,
    /// The tokens of each item that a state goes through, from the first to before the last: one run, or one for each
    /// document. What is outside of them writes nothing.
    pub spans: Vec<Vec<(usize, usize)>>,
    /// Whether the state decays.
    pub is_gated: bool,
    /// Whether there is a state before the first token.
    pub has_initial: bool,
    /// How it is computed: token by token, as it should be, or with a mistake.
    pub form: DeltaForm,
}

/// What is computed of the delta rule. All read the decay behind what is named here, where there is one, and behind that the
/// first state, where there is one; at the end β, where a mistake needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaStage {
    /// u: what a token writes. Reads values, keys and β.
    Written,
    /// The state after every token. Reads u and keys.
    States,
    /// The state before every chunk of so many tokens. Reads u and keys.
    Chunks(usize),
    /// Sᵀ q of every token. Reads queries, keys and u.
    Read,
    /// The state after the last token of every sequence. Reads u and keys.
    Last,
}

impl DeltaStage {
    /// How many inputs it reads before the decay.
    pub(super) fn inputs(self) -> usize {
        if matches!(self, Self::Written | Self::Read) { 3 } else { 2 }
    }
}

/// Which of the inputs is which.
pub(super) struct Inputs<T> {
    pub queries: Option<T>,
    pub keys: T,
    /// Values, or what is written of them.
    pub values: T,
    pub beta: Option<T>,
    pub decay: Option<T>,
    pub initial: Option<T>,
}

impl Delta {
    /// Takes the inputs apart.
    pub(super) fn inputs<T: Copy>(&self, all: &[T]) -> Result<Inputs<T>, Misread> {
        let (own, rest) = all.split_at_checked(self.stage.inputs()).ok_or(Misread)?;
        let (late, rest) = match rest {
            [rest @ .., beta] if self.needs_beta() => (Some(*beta), rest),
            rest => (None, rest),
        };
        let (decay, rest) = match rest {
            [decay, rest @ ..] if self.is_gated => (Some(*decay), rest),
            rest => (None, rest),
        };
        let initial = match rest {
            [initial] if self.has_initial => Some(*initial),
            [] if !self.has_initial => None,
            _ => return Err(Misread),
        };
        let (queries, keys, values, beta) = match (self.stage, own) {
            (DeltaStage::Written, [values, keys, beta]) => (None, *keys, *values, Some(*beta)),
            (DeltaStage::Read, [queries, keys, values]) => (Some(*queries), *keys, *values, late),
            (_, [values, keys]) => (None, *keys, *values, late),
            _ => return Err(Misread),
        };
        if decay.is_none() && self.is_gated {
            return Err(Misread);
        }
        Ok(Inputs { queries, keys, values, beta, decay, initial })
    }

    /// Whether what is computed of the first so many tokens is the same where there are no later ones.
    pub(super) fn may_end_at(&self, count: usize) -> bool {
        match self.form {
            DeltaForm::Tokens(slip) => slip != Some(DeltaSlip::Joined),
            DeltaForm::Chunks(size, slip) => {
                let ends_there = |(from, to): &(usize, usize)| {
                    count <= *from || count >= *to || (count - from).is_multiple_of(size)
                };
                !slip.is_some_and(|slip| slip.reads_later())
                    || self.spans.iter().flatten().all(ends_there)
            }
        }
    }

    /// Whether a mistake makes it read β where the right step has what is written.
    pub fn needs_beta(&self) -> bool {
        let is_unwritten = matches!(self.form, DeltaForm::Chunks(_, Some(ChunkSlip::Writes(..))));
        is_unwritten && self.stage != DeltaStage::Written
    }

    /// Where the chunks of so many tokens begin in an item: those of each document, or those of all tokens.
    pub(super) fn starts(&self, item: usize, tokens: usize, size: usize) -> Vec<usize> {
        match self.spans.get(item).map(Vec::as_slice) {
            Some(spans @ [_, _, ..]) => {
                spans.iter().flat_map(|(from, to)| (*from..*to).step_by(size.max(1))).collect()
            }
            _ => (0..tokens).step_by(size.max(1)).collect(),
        }
    }

    /// The most chunks of so many tokens that an item has.
    pub(super) fn chunks(&self, tokens: usize, size: usize) -> usize {
        let items = 0..self.spans.len();
        items.map(|item| self.starts(item, tokens, size).len()).max().unwrap_or_default()
    }

    /// The number of sequences that have a state.
    pub fn sequences(&self) -> usize {
        self.spans.iter().map(Vec::len).sum()
    }
}

/// The item of a sequence, its number, and its tokens.
pub(super) type Sequence = (usize, usize, (usize, usize));

impl Delta {
    fn sequences_of(&self) -> impl Iterator<Item = Sequence> {
        let items = self.spans.iter().enumerate();
        let all = items.flat_map(|(item, spans)| spans.iter().map(move |span| (item, *span)));
        all.enumerate().map(|(sequence, (item, span))| (item, sequence, span))
    }

    /// The sequence that a token of an item is of, or the only one, whose state is that of tokens outside of it.
    pub(super) fn sequence_of(&self, item: usize, token: usize) -> Option<Sequence> {
        let is_one = self.spans.get(item).is_some_and(|spans| spans.len() == 1);
        let is_it = |(of, _, (from, to)): &Sequence| {
            *of == item && (is_one || (*from..*to).contains(&token))
        };
        self.sequences_of().find(is_it)
    }

    pub(super) fn span_of(&self, sequence: usize) -> Option<Sequence> {
        self.sequences_of().nth(sequence)
    }
}

/// How the delta rule is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DeltaForm {
    /// Token by token, with a mistake if there is one.
    Tokens(Option<DeltaSlip>),
    /// In chunks of so many tokens, with a mistake if there is one.
    Chunks(usize, Option<ChunkSlip>),
}

clauses! {
    /// What goes wrong in a step of the delta rule, with a clause that tells it.
    DeltaSlip {
        /// S = decay · (S + k uᵀ), u of S.
        DecayLate => "the state decays after the write, not before it",
        /// S = S + k uᵀ, u of decay · S.
        DecayOnRead => "the state decays for what is subtracted alone: it is written undecayed",
        /// u of S, S = decay · S + k uᵀ.
        UndecayedDelta => "what is subtracted from the value is read from the state before its decay",
        /// The output of the decayed state of before.
        StrictRead => "the output is read before the token is written: the inner mask is strict, and no token reads its own value",
        /// The same before its decay, too.
        ReadBefore => "the output is read from the state of the token before, undecayed: no token reads its own value",
        /// u = v − S′ᵀ k.
        NoBeta => "beta is left out",
        /// β².
        BetaTwice => "beta is applied twice",
        /// u = v − β S′ᵀ k.
        BetaOnRead => "beta multiplies what is subtracted, and not the value",
        /// u = β v − S′ᵀ k.
        BetaOnValue => "beta multiplies the value, and not what is subtracted",
        /// u = β (β v − S′ᵀ k).
        BetaTwiceOnValue => "beta multiplies the value twice, and what is subtracted once",
        /// u = β (v − S′ᵀ (β k)).
        BetaOnKey => "beta multiplies the key that the state is read with, too: what is subtracted has it twice",
        /// u = β v.
        Additive => "nothing is subtracted from the value: plain linear attention, without the delta",
        /// u = β (v + S′ᵀ k).
        Added => "what the state has for the key is added to the value, not subtracted",
        /// u of itself.
        OwnToken => "a token's own write is subtracted, too: the inner mask of the keys is not strict",
        /// Documents, or items, share a state.
        Joined => "the state is not started anew: it goes on from the document or the item before",
        /// The state is rounded after every token.
        InBf16 => "the state is kept in bf16",
        /// The same.
        InF16 => "the state is kept in f16",
        /// Of every value feature its own.
        DecayOfValues => "the decay of the key features is applied to the value features",
        /// The last token is not in it.
        BeforeLast => "the last state is the one before the last token",
        /// No first state.
        FromZero => "the initial state is not used: it starts from zeros",
        /// Behind the sequence, S = decay · S.
        PaddingDecays => "the state decays over tokens of padding, too",
    }
}

impl Delta {
    /// The same step with a mistake, for each that it can have.
    pub fn mistaken(&self) -> Vec<(DeltaSlip, Self)> {
        let slips = DeltaSlip::ALL.into_iter().filter(|slip| self.can_have(*slip));
        slips.map(|slip| (slip, self.with(DeltaForm::Tokens(Some(slip))))).collect()
    }

    /// The same step in chunks of so many tokens with a mistake, if it can have that.
    #[must_use]
    pub fn in_chunks(&self, size: usize, slip: ChunkSlip) -> Option<Self> {
        self.can_have_in_chunks(slip).then(|| self.with(DeltaForm::Chunks(size, Some(slip))))
    }

    fn with(&self, form: DeltaForm) -> Self {
        Self { form, ..self.clone() }
    }

    /// Whether a mistake changes this step, and in another way than the others.
    fn can_have(&self, slip: DeltaSlip) -> bool {
        use DeltaSlip as Slip;
        let has_stage = |stage| self.stage == stage;
        match slip {
            Slip::UndecayedDelta => has_stage(DeltaStage::Written) && self.is_gated,
            Slip::NoBeta
            | Slip::BetaTwice
            | Slip::BetaOnRead
            | Slip::BetaOnValue
            | Slip::BetaTwiceOnValue
            | Slip::BetaOnKey
            | Slip::Additive
            | Slip::Added
            | Slip::OwnToken => has_stage(DeltaStage::Written),
            Slip::StrictRead => has_stage(DeltaStage::Read),
            Slip::ReadBefore => has_stage(DeltaStage::Read) && self.is_gated,
            Slip::BeforeLast => has_stage(DeltaStage::Last),
            Slip::DecayLate | Slip::DecayOnRead | Slip::DecayOfValues => self.is_gated,
            Slip::FromZero => self.has_initial,
            Slip::PaddingDecays => {
                self.is_gated && self.spans.iter().flatten().any(|(from, to)| to > from)
            }
            Slip::Joined => self.sequences() > 1,
            Slip::InBf16 | Slip::InF16 => true,
        }
    }

    fn can_have_in_chunks(&self, slip: ChunkSlip) -> bool {
        let computes = |at: &ChunkUse| match at {
            ChunkUse::Keys | ChunkUse::Values | ChunkUse::Subtracted => {
                self.stage == DeltaStage::Written
            }
            ChunkUse::Read | ChunkUse::Within => self.stage == DeltaStage::Read,
            ChunkUse::Carried | ChunkUse::Written => true,
        };
        let may = match slip {
            ChunkSlip::Decay(uses, decay) => {
                // Nothing but the last chunk may have more room than tokens.
                self.is_gated
                    && uses.iter().any(|at| computes(at) && decay.is_of(*at))
                    && (decay != ChunkDecay::Padded || self.stage == DeltaStage::Last)
            }
            ChunkSlip::ResetAll | ChunkSlip::Restart | ChunkSlip::State(_, ChunkState::First) => {
                self.has_initial
            }
            ChunkSlip::State(_, ChunkState::Numbered(_)) => {
                self.spans.iter().any(|spans| spans.len() > 1)
            }
            _ => true,
        };
        may && slip.uses().iter().any(computes)
    }
}
