//! Which mistakes are known of what the delta rule's chunks read: of which state, and of which of their own tokens' writes?

use super::delta::{CARRIED, FIRST, READ, SUBTRACTED, ways};
use super::{Mistake, Way};
use program::ChunkNumber::{Full, OfToken};
use program::ChunkSlip::{State, Times, Writes};
use program::ChunkUse::{Read, Subtracted, Within, Written};
use program::ChunkWrites::{Plain, Scaled, Solved};
use program::{ChunkNumber, ChunkState, Kind};

const NUMBERED: &str = "h[sum(ceil(n / size) for n in lengths[:i]) + chunk]";

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "delta-chunk-within",
        kind: Kind::Omitted,
        silent: FIRST,
        ways: ways! {
            Times(Read, 0.0) =>
                "queries read from their own chunk alone: what the state has is not added",
                "o = (q @ k.mT * decay_mask).tril() @ v_new", READ;
            Times(Within, 0.0) =>
                "queries read from the chunks before alone, not from their own",
                "o = (q * g.exp()) @ state", READ;
            Times(Subtracted, 0.0) =>
                "what is subtracted from a value is of its own chunk alone, not of the state",
                "v_new = T @ v_beta", SUBTRACTED;
            Times(Subtracted, -1.0) =>
                "what the state has for the keys is added to the values, not subtracted",
                "v_new = T @ v_beta + T @ (k_beta * g.exp()) @ state", SUBTRACTED;
            Writes(&[Within], Solved) =>
                "queries read u within their chunk, of which nothing of the state is subtracted, not v_new = u − w S",
                "o = (q * g.exp()) @ state + (q @ k.mT * decay_mask).tril() @ u", READ;
            Writes(&[Within], Scaled) =>
                "queries read the values times beta within their chunk, not what is written of them",
                "o = (q * g.exp()) @ state + (q @ k.mT * decay_mask).tril() @ v_beta", READ;
            Writes(&[Within], Plain) =>
                "queries read the values within their chunk, not what is written of them",
                "o = (q * g.exp()) @ state + (q @ k.mT * decay_mask).tril() @ v", READ;
            Writes(&[Written], Solved) =>
                "u is written into the state, of which nothing of the state is subtracted, not v_new = u − w S",
                "state = state * g_last.exp() + (k * (g_last - g).exp()).mT @ u", CARRIED;
            Writes(&[Written], Scaled) =>
                "the values times beta are written into the state, of which nothing is subtracted",
                "state = state * g_last.exp() + (k * (g_last - g).exp()).mT @ v_beta", CARRIED;
            Writes(&[Within, Written], Solved) =>
                "u is read and written, of which nothing of the state is subtracted, not v_new = u − w S",
                "v_new = u", SUBTRACTED;
        },
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-state",
        kind: Kind::Replaced,
        silent: FIRST,
        ways: ways! {
            State(&[Read], ChunkState::Before) =>
                "queries read the state before the chunk before theirs: it is read one chunk too early",
                "o = (q * g.exp()) @ h[i - 1] + …", "o = (q * g.exp()) @ h[i] + …";
            State(&[Subtracted], ChunkState::Before) =>
                "what is subtracted is read from the state before the chunk before: it is read one chunk too early",
                "v_new = u - w @ h[i - 1]", "v_new = u - w @ h[i]";
            State(&[Subtracted, Read], ChunkState::Before) =>
                "all is read from the state before the chunk before: it is read one chunk too early",
                "h = h_before", "h = h_now";
            State(&[Read], ChunkState::First) =>
                "queries of every chunk read the initial state",
                "o = (q * g.exp()) @ initial_state + …", READ;
            State(&[Subtracted], ChunkState::First) =>
                "what is subtracted is read from the initial state in every chunk",
                "v_new = u - w @ initial_state", SUBTRACTED;
            State(&[Read], ChunkState::Transposed) =>
                "queries read the transpose of the state",
                "o = (q * g.exp()) @ state.mT + …", READ;
            State(&[Subtracted], ChunkState::Transposed) =>
                "what is subtracted is read from the transpose of the state",
                "v_new = T @ v_beta - T @ (k_beta * g.exp()) @ state.mT", SUBTRACTED;
            State(&[Subtracted, Read], ChunkState::Transposed) =>
                "all is read from the transpose of the state",
                "h = state.mT", "h = state";
            State(&[Read], ChunkState::Numbered(OfToken)) =>
                "queries of a document read the states of other chunks: its first chunk is taken for number first token // size, where shorter chunks before it leave more",
                "h[cu_seqlens[i] // size + chunk]", NUMBERED;
            State(&[Read], ChunkState::Numbered(Full)) =>
                "queries of a document read the states of other chunks: of the documents before it full chunks alone are counted",
                "h[sum(n // size for n in lengths[:i]) + chunk]", NUMBERED;
            State(&[Read], ChunkState::Numbered(ChunkNumber::None)) =>
                "queries of every document read the states of the first document's chunks",
                "h[chunk]", NUMBERED;
        },
        seen: &[],
    },
];
