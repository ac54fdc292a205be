//! The delta rule: what is computed of it, and what goes wrong there, token by token and in chunks.

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
/// first state, where there is one.
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
            (DeltaStage::Read, [queries, keys, values]) => (Some(*queries), *keys, *values, None),
            (_, [values, keys]) => (None, *keys, *values, None),
            _ => return Err(Misread),
        };
        if decay.is_none() && self.is_gated {
            return Err(Misread);
        }
        Ok(Inputs { queries, keys, values, beta, decay, initial })
    }

    /// Whether what is computed of a token is the same where there are no later ones.
    pub(super) fn reads_no_later_token(&self) -> bool {
        let is_of_token = match self.form {
            DeltaForm::Tokens(slip) => slip != Some(DeltaSlip::Joined),
            DeltaForm::Chunks(_, slip) => !matches!(
                slip,
                Some(ChunkSlip::Unmasked | ChunkSlip::StateAfter | ChunkSlip::FullChunks)
            ),
        };
        is_of_token && !matches!(self.stage, DeltaStage::Chunks(_))
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

/// Which of the decays of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkDecay {
    /// That of what was carried to the chunk, over all of it.
    Carried,
    /// That of what the chunk writes, up to its end.
    Written,
    /// That of what queries read of the state.
    Read,
    /// That of what is subtracted of the state.
    Subtracted,
}

/// What goes wrong in chunks, the entries of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ChunkSlip {
    /// Each begins with zeros, but for the first.
    Reset,
    /// Each begins with zeros, the first as well, whatever state there is before it.
    ResetAll,
    /// What was carried to a chunk is lost.
    Overwritten,
    /// Each begins with the first state.
    Restart,
    /// The state is not decayed over a chunk.
    CarryUndecayed,
    /// It is decayed by the last token of it alone.
    CarryByLast,
    /// It is decayed as over the chunk before, and not at all over the first.
    CarryByBefore,
    /// The decay up to the end of a last chunk that is not full is read behind its tokens, where it is 1.
    PaddedEnd,
    /// The decay up to the end of a chunk is read so many tokens before its last: at its first where it has no more.
    EndBefore(usize),
    /// The same, for what was carried to the chunk alone.
    CarryEndBefore(usize),
    /// The same, for what the chunk writes alone.
    WriteEndBefore(usize),
    /// One of its decays is taken in another base than g is in: by exp of one in base 2, or by exp2 of a natural one.
    OtherBase(ChunkDecay, f64),
    /// What is subtracted of the state is solved with the keys' matrix undecayed.
    SubtractedUndecayed,
    /// What is added of the values is.
    ValuesUndecayed,
    /// What a chunk writes is not decayed to its end.
    WriteUndecayed,
    /// What queries read from chunks before is not decayed.
    InterUndecayed,
    /// It is decayed by the tokens before the query's alone, not by its own decay.
    InterExclusive,
    /// What keys read from chunks before is not decayed.
    DeltaUndecayed,
    /// β is applied twice to what keys read from chunks before.
    DeltaTwice,
    /// Neither of these is decayed, nor is what is carried on.
    NothingDecays,
    /// What queries read of chunks before is multiplied by this, too.
    InterTimes(f64),
    /// What they read within their own is.
    IntraTimes(f64),
    /// Nothing is subtracted of chunks before.
    DeltaWithin,
    /// Queries read nothing of chunks before.
    ReadWithin,
    /// Queries read nothing of their own chunk.
    ReadBefore,
    /// What queries read within their chunk is not decayed.
    IntraUndecayed,
    /// What is subtracted within a chunk is not decayed.
    IntraDeltaUndecayed,
    /// Queries see the tokens behind them.
    Unmasked,
    /// They read the state of their chunk's end.
    StateAfter,
    /// What is behind the last full chunk is not computed.
    FullChunks,
    /// The decay is the product of all tokens before, not of those of the chunk.
    Cumulative,
    /// What is read of the chunks before is decayed by all tokens before; the state is not.
    CumulativeRead,
    /// 1 − β k·k in place of 1 on the diagonal.
    Diagonal,
    /// The inverse is cut off within chunks: 1 − A in place of (1 + A)⁻¹.
    FirstOrder,
    /// (1 − A)⁻¹ in place of (1 + A)⁻¹.
    OtherSign,
    /// The forward substitution ends one row early: of the last row of a chunk, or where this is true of the last token that
    /// a chunk has, nothing is subtracted that is of its own chunk.
    LastUncorrected(bool),
    /// A without β.
    NoBetaWithin,
    /// Of the inverse within chunks, blocks of so many tokens alone.
    Blocks(usize),
    /// Of the inverse within chunks the second half of the rows, by the first half of the columns, lacks the inverse of the
    /// second half: −A₂₁ A₁₁⁻¹ in place of −A₂₂⁻¹ A₂₁ A₁₁⁻¹.
    MergedWithoutSecond,
    /// It lacks that of the first half: −A₂₂⁻¹ A₂₁.
    MergedWithoutFirst,
    /// It lacks both: −A₂₁.
    MergedPlain,
    /// Values are decayed from their chunk's start before they are written, as the state that they are compared with is.
    ValuesDecayed,
    /// What queries read within their chunk is decayed by each key's own decay, too.
    IntraInclusive,
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
        use ChunkSlip as Slip;
        let (is_write, is_read) =
            (self.stage == DeltaStage::Written, self.stage == DeltaStage::Read);
        match slip {
            Slip::DeltaUndecayed
            | Slip::IntraDeltaUndecayed
            | Slip::SubtractedUndecayed
            | Slip::ValuesUndecayed
            | Slip::ValuesDecayed
            | Slip::OtherBase(ChunkDecay::Subtracted, _) => is_write && self.is_gated,
            Slip::DeltaTwice
            | Slip::DeltaWithin
            | Slip::FirstOrder
            | Slip::OtherSign
            | Slip::LastUncorrected(_)
            | Slip::NoBetaWithin
            | Slip::Blocks(_)
            | Slip::MergedWithoutSecond
            | Slip::MergedWithoutFirst
            | Slip::MergedPlain
            | Slip::Diagonal => is_write,
            Slip::InterUndecayed
            | Slip::InterExclusive
            | Slip::IntraUndecayed
            | Slip::IntraInclusive
            | Slip::OtherBase(ChunkDecay::Read, _) => is_read && self.is_gated,
            Slip::ReadWithin
            | Slip::ReadBefore
            | Slip::InterTimes(_)
            | Slip::IntraTimes(_)
            | Slip::Unmasked
            | Slip::StateAfter => is_read,
            Slip::CarryUndecayed
            | Slip::CarryByLast
            | Slip::CarryByBefore
            | Slip::WriteUndecayed
            | Slip::EndBefore(_)
            | Slip::CarryEndBefore(_)
            | Slip::WriteEndBefore(_)
            | Slip::OtherBase(ChunkDecay::Carried | ChunkDecay::Written, _)
            | Slip::NothingDecays
            | Slip::Cumulative
            | Slip::CumulativeRead => self.is_gated,
            Slip::PaddedEnd => self.is_gated && self.stage == DeltaStage::Last,
            Slip::ResetAll | Slip::Restart => self.has_initial,
            Slip::Reset | Slip::Overwritten | Slip::FullChunks => true,
        }
    }
}

impl ChunkSlip {
    /// Whether all steps have it if one has it.
    pub fn is_of_all(self) -> bool {
        matches!(
            self,
            Self::Reset
                | Self::ResetAll
                | Self::Restart
                | Self::CarryByBefore
                | Self::EndBefore(_)
                | Self::CarryEndBefore(_)
                | Self::WriteEndBefore(_)
                | Self::NothingDecays
                | Self::Cumulative
                | Self::CumulativeRead
        )
    }

    /// Whether it shows in a single chunk, too.
    pub fn is_within(self) -> bool {
        matches!(
            self,
            Self::IntraUndecayed
                | Self::IntraInclusive
                | Self::IntraDeltaUndecayed
                | Self::ValuesUndecayed
                | Self::ValuesDecayed
                | Self::Unmasked
                | Self::FullChunks
                | Self::ReadBefore
                | Self::StateAfter
                | Self::FirstOrder
                | Self::OtherSign
                | Self::LastUncorrected(true)
                | Self::Blocks(_)
                | Self::MergedWithoutSecond
                | Self::MergedWithoutFirst
                | Self::MergedPlain
                | Self::Diagonal
                | Self::NothingDecays
        )
    }
}
