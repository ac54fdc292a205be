//! Colours of a terminal.

use comfy_table::Color;

/// The colours that a terminal has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Palette {
    /// Whether it has all colours, and not 256 only.
    pub is_true: bool,
    /// Whether its background is light.
    pub is_light: bool,
}

/// From light to dark: colours of the 256, and what they are by xterm's table.
const BLUES: [(u8, [u8; 3]); 6] = [
    (195, [215, 255, 255]),
    (153, [175, 215, 255]),
    (111, [135, 175, 255]),
    (68, [95, 135, 215]),
    (25, [0, 95, 175]),
    (17, [0, 0, 95]),
];

const BLACK: Color = Color::AnsiValue(16);
const WHITE: Color = Color::AnsiValue(231);

impl Palette {
    /// The background and the text of a cell, by how high it is in thousandths: the lowest are nearest to the
    /// terminal's own background.
    pub(super) fn heat(self, thousandths: u16) -> (Color, Color) {
        let thousandths = usize::from(thousandths.min(1000));
        let dark = if self.is_light { thousandths } else { 1000 - thousandths };
        let last = BLUES.len() - 1;
        let ink = if dark < 500 { BLACK } else { WHITE };
        if !self.is_true {
            let nearest = BLUES.get((dark * last + 500) / 1000);
            return (nearest.map_or(Color::Reset, |(index, _)| Color::AnsiValue(*index)), ink);
        }
        let at = (dark * last / 1000).min(last - 1);
        let part = dark * last - at * 1000;
        let (Some((_, from)), Some((_, to))) = (BLUES.get(at), BLUES.get(at + 1)) else {
            return (Color::Reset, ink);
        };
        let mixed = |of: usize| {
            let [from, to] = [from, to].map(|color| color.get(of).copied().map_or(0, usize::from));
            u8::try_from((from * (1000 - part) + to * part) / 1000).unwrap_or(u8::MAX)
        };
        (Color::Rgb { r: mixed(0), g: mixed(1), b: mixed(2) }, ink)
    }

    /// A text on the background of such a cell.
    pub(super) fn painted(self, thousandths: u16, text: &str) -> String {
        let back = match self.heat(thousandths).0 {
            Color::Rgb { r, g, b } => format!("2;{r};{g};{b}"),
            Color::AnsiValue(index) => format!("5;{index}"),
            _ => return text.to_owned(),
        };
        format!("\u{1b}[48;{back}m{text}\u{1b}[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_is_nearest_to_the_background() {
        let heat = |is_true, is_light, at| Palette { is_true, is_light }.heat(at);
        assert_eq!(heat(false, true, 0), (Color::AnsiValue(195), BLACK));
        assert_eq!(heat(false, true, 1000), (Color::AnsiValue(17), WHITE));
        assert_eq!(heat(false, false, 0), (Color::AnsiValue(17), WHITE));
        assert_eq!(heat(false, false, 1000), (Color::AnsiValue(195), BLACK));
        assert_eq!(heat(true, true, 0).0, Color::Rgb { r: 215, g: 255, b: 255 });
        assert_eq!(heat(true, true, 1000).0, Color::Rgb { r: 0, g: 0, b: 95 });
        assert_eq!(heat(true, true, 100).0, Color::Rgb { r: 195, g: 235, b: 255 });
    }
}
