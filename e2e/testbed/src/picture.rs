//! A terminal with a table, as an SVG picture. The columns are aligned with every font.

use std::fmt::Write;

/// Width of a character and height of a line, in pixels.
const CHARACTER: f64 = 7.3;
const LINE: usize = 18;
/// Space between the left edge and the text. Above the text it is one line.
const MARGIN: f64 = 18.0;
/// Space between two columns, in characters.
const GAP: usize = 2;

/// Returns a picture of a table with its first row as the header, below a command and above further lines.
pub fn svg<const COLUMNS: usize>(command: &str, rows: &[[String; COLUMNS]], below: &[String]) -> String {
    let length = |text: &str| text.chars().count();
    let mut starts = Vec::new();
    let mut next = 0;
    for column in 0..COLUMNS {
        starts.push(next);
        next += rows.iter().map(|row| length(row[column].trim_end())).max().unwrap_or_default() + GAP;
    }
    let widest = below.iter().map(|line| length(line)).max().unwrap_or_default().max(next - GAP);
    let (width, height) = (at(widest) + MARGIN, (rows.len() + below.len() + 5) * LINE);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height}\" viewBox=\"0 0 {width:.0} {height}\" \
         font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#161b22\"/>\n"
    );
    let mut line = 1;
    text(&mut svg, 0, line, "#e6edf3", &format!("$ {command}"));
    line += 1;
    for (number, row) in rows.iter().enumerate() {
        line += 1;
        for (cell, start) in row.iter().zip(&starts) {
            // Spaces at the beginning of a text are not drawn, so they move it.
            let indent = length(cell) - length(cell.trim_start());
            text(&mut svg, start + indent, line, colour(cell, number == 0), cell.trim());
        }
    }
    line += 1;
    for words in below {
        line += 1;
        let indent = length(words) - length(words.trim_start());
        text(&mut svg, indent, line, colour(words, false), words.trim());
    }
    svg + "</svg>\n"
}

/// Returns the position of a column of characters.
#[allow(clippy::cast_precision_loss)] // lines have few characters
fn at(column: usize) -> f64 {
    MARGIN + column as f64 * CHARACTER
}

/// Adds a text in a line, which begins at this column of characters.
fn text(svg: &mut String, column: usize, line: usize, colour: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let (x, y) = (at(column), (line + 1) * LINE);
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" fill=\"{colour}\">{words}</text>");
}

/// Returns green for a condition that is true, red for one that is false, and otherwise the colour of plain text.
fn colour(words: &str, is_header: bool) -> &'static str {
    match words {
        _ if is_header => "#7d8590",
        _ if words.contains("=True") => "#3fb950",
        _ if words.contains("=False") => "#f85149",
        _ => "#e6edf3",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_has_a_text_for_each_cell_at_its_column() {
        let rows = [["what", "says"], ["  a&b", "Ready=True Fine"]].map(|row| row.map(str::to_owned));
        let picture = svg("demo", &rows, &["  done <now>".to_owned()]);
        let texts: Vec<&str> = picture.lines().filter(|line| line.starts_with("<text ")).collect();
        assert_eq!(
            texts,
            [
                "<text x=\"18.0\" y=\"36\" fill=\"#e6edf3\">$ demo</text>",
                "<text x=\"18.0\" y=\"72\" fill=\"#7d8590\">what</text>",
                "<text x=\"69.1\" y=\"72\" fill=\"#7d8590\">says</text>",
                "<text x=\"32.6\" y=\"90\" fill=\"#e6edf3\">a&amp;b</text>",
                "<text x=\"69.1\" y=\"90\" fill=\"#3fb950\">Ready=True Fine</text>",
                "<text x=\"32.6\" y=\"126\" fill=\"#e6edf3\">done &lt;now&gt;</text>",
            ]
        );
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    }
}
