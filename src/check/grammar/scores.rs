//! What becomes of scores and sinks that the right operations have no number for?

use super::{Grammar, after};
use crate::candidate::cost;
use program::{Biasing, Cells, Change, Kind, Name, Op, ScoreSlip, SinkSlip, Slip, Step};

impl Grammar<'_> {
    pub(super) fn of_scores(&mut self, step: &Step) {
        let read = self.read(step);
        if step.name == Name::Scores && self.right.step(Name::AttnBias).is_none() {
            let first = self.sizes.first_position();
            let change = after(Slip::Scores(ScoreSlip::Alibi { first }), &[]);
            let told = tr!("position biases (ALiBi) are added to it");
            self.add(Kind::Inserted, cost::PLAIN, step.name, change, told);
        }
        if let ([_, mask], Op::Biasing(Biasing::Add)) = (&read[..], &step.op) {
            if let Some(scaled) = self.right.step(Name::Scores) {
                let change = Change::Before(1, scaled.op.clone(), Vec::new());
                let told = tr!("the bias is added before the scaling, and scaled with the scores");
                self.add(Kind::Moved, cost::COMMON, step.name, change, told);
            }
            let cells = [
                (Cells::NotPositive, tr!("what is not above 0")),
                (Cells::Zero, tr!("what is 0")),
                (Cells::NotZero, tr!("what is not 0")),
            ];
            for (cells, which) in cells {
                for fill in [-1e9, f64::NEG_INFINITY] {
                    let slip = Slip::Scores(ScoreSlip::FillWhere(cells, fill));
                    let told = tr!(
                        "{mask} is taken as a boolean mask: {which} blocks ({fill})",
                        mask,
                        which,
                        fill = format!("{fill:e}")
                    );
                    self.add(
                        Kind::Mask,
                        cost::PLAIN,
                        step.name,
                        Change::Replace(slip.into()),
                        told,
                    );
                }
            }
        }
        if read.contains(&Name::Sinks) {
            for slip in SinkSlip::ALL {
                let (kind, told) = slip.told();
                let change = Change::Replace(Slip::Scores(ScoreSlip::Sinks(slip)).into());
                self.add(kind, cost::PLAIN, step.name, change, told);
            }
        }
    }
}
