//! Positions of tokens that are not one after the other.

use std::sync::Arc;

use base::lang;

choices! {
    /// How pairs of features that turn by several positions of a token are laid out.
    SectionOrder {
        /// One section behind the other, as in Qwen2-VL.
        #[default]
        Chunked = "chunked",
        /// Time, height, width in turn, and time where the others have run out, as in Qwen3-VL.
        Interleaved = "interleaved",
    }
}

/// The positions of tokens, which rotary positions turn by.
///
/// A token of an image or a video can have three, of time, height and width ("Qwen2-VL", Wang et al., 2024, section 2.1):
/// each turns a section of the pairs of features.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// By section (one, or three), by item of the batch (one, or all), by token.
    pub rows: Arc<Vec<Vec<Vec<usize>>>>,
    /// How many pairs each section has; none where every token has one position.
    pub sections: Vec<usize>,
    /// How the sections are laid out.
    pub order: SectionOrder,
}

impl Places {
    /// How many items have positions of their own; 1 where all have the same.
    pub fn items(&self) -> usize {
        self.rows.first().map_or(1, Vec::len)
    }

    /// The position by which a pair of a token's features is turned.
    pub fn at(&self, item: usize, token: usize, pair: usize) -> usize {
        let section = self.rows.get(self.section(pair)).or(self.rows.first());
        let row = section.and_then(|items| items.get(item).or(items.first()));
        row.and_then(|row| row.get(token).copied()).unwrap_or_default()
    }

    /// The section of a pair: 0, 1 or 2.
    fn section(&self, pair: usize) -> usize {
        let of = |section: usize| self.sections.get(section).copied().unwrap_or_default();
        match self.order {
            SectionOrder::Interleaved => {
                let section = pair % 3;
                if pair / 3 < of(section) { section } else { 0 }
            }
            SectionOrder::Chunked if pair < of(0) => 0,
            SectionOrder::Chunked => usize::from(pair >= of(0) + of(1)) + 1,
        }
    }

    /// Whether tokens have several positions.
    pub fn is_sectioned(&self) -> bool {
        self.rows.len() > 1
    }

    /// The largest position.
    pub fn last(&self) -> usize {
        self.rows.iter().flatten().flatten().copied().max().unwrap_or_default()
    }

    /// Those of one item.
    pub fn of_item(&self, item: usize) -> Self {
        if self.items() < 2 {
            return self.clone();
        }
        let own = |items: &Vec<Vec<usize>>| items.get(item).cloned().into_iter().collect();
        Self { rows: Arc::new(self.rows.iter().map(own).collect()), ..self.clone() }
    }

    /// Those of one section alone, which turn every pair.
    pub fn of_section(&self, section: usize) -> Self {
        let rows = self.rows.get(section).cloned().into_iter().collect();
        Self { rows: Arc::new(rows), ..self.clone() }
    }

    /// What a page says of them.
    pub fn told(&self) -> String {
        let Self { sections, order, .. } = self;
        let sections: Vec<String> = sections.iter().map(ToString::to_string).collect();
        if self.is_sectioned() {
            tr!(
                "given positions in sections of {sections} pairs, {order}",
                sections = lang::list(&sections),
                order
            )
        } else {
            tr!("given positions").to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_those_of_qwen() {
        let of = |order| {
            let rows = Arc::new(vec![vec![vec![0]], vec![vec![1]], vec![vec![2]]]);
            let places = Places { rows, sections: vec![4, 2, 2], order };
            (0..8).map(|pair| places.at(0, 0, pair)).collect::<Vec<_>>()
        };
        assert_eq!(of(SectionOrder::Chunked), [0, 0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(of(SectionOrder::Interleaved), [0, 1, 2, 0, 1, 2, 0, 0]);
    }
}
