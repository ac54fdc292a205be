//! Where may a rotation by positions stand that does not belong there?

use super::{Grammar, after};
use crate::candidate::cost;
use program::{Change, Edit, Kind, Name, Op, Pairing, Rotary, Slip, Step};

impl Grammar<'_> {
    /// Queries and keys that are turned by their positions in a run that has no rotation.
    pub(super) fn turned_anyway(&mut self, step: &Step) {
        if self.right.step(Name::QRot).is_some() {
            return;
        }
        for pairing in [Pairing::Half, Pairing::Interleaved] {
            let rope = || Slip::Rope { pairing, base: 10_000.0 }.into();
            let turn = |slot| Edit::new(step.name, Change::Before(slot, rope(), Vec::new()));
            let pairs = pairing.name();
            let told = tr!(
                "queries and keys are turned by their positions ({pairs} pairs, base 10000)",
                pairs
            );
            let edits = vec![turn(0), turn(1)];
            self.add_all(Kind::Inserted, cost::PLAIN, edits, step.name, told);
        }
    }

    /// A rotation of all features of a token, before they are split into heads.
    pub(super) fn turned_whole(&mut self, step: &Step) {
        let projection = match step.name {
            Name::QRot => Name::Q,
            Name::KRot => Name::K,
            _ => return,
        };
        let freqs = self.right.read_by(step).get(1).map(|read| &read.op);
        let (Op::Rotary(Rotary::Rotate(own)), Some(Op::Rotary(Rotary::Frequencies(freqs)))) =
            (&step.op, freqs)
        else {
            return;
        };
        for pairing in [Pairing::Half, Pairing::Interleaved] {
            let cost = cost::PLAIN + u32::from(pairing != own.pairing);
            let rope = Slip::Rope { pairing, base: freqs.base };
            let edits =
                vec![Edit::new(projection, after(rope, &[])), Edit::new(step.name, Change::Omit)];
            let told = tr!(
                "the rotation runs over all features of a token, before they are split into heads"
            );
            self.add_all(Kind::Moved, cost, edits, step.name, told);
        }
    }
}
