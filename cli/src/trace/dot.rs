//! A trace as a graph for Graphviz.

use std::fmt::Write as _;

use super::judge::Trace;
use crate::screen::Mark;

/// Returns the graph: the Workload, and for each deployment one node for each link.
pub fn dot(trace: &Trace) -> String {
    let mut text =
        "digraph trace {\n  rankdir=LR;\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n".to_owned();
    let title = format!("Workload {}/{}", trace.namespace, trace.workload);
    let mark = if trace.worst().is_none() { Mark::Well } else { Mark::Broken };
    let _ = writeln!(text, "  workload [label={}, fillcolor={}];", quoted(&title), colour(mark));
    for (number, way) in trace.ways.iter().enumerate() {
        let mut from = "workload".to_owned();
        for step in &way.steps {
            let node = format!("d{number}_{}", step.link.name());
            let mut label = format!("{} {}\n{}", way.city, step.link.name(), step.text);
            if let Some(broken) = way.broken.as_ref().filter(|_| step.mark == Mark::Broken) {
                let _ = write!(label, "\n{}: {}", broken.reason, broken.message);
            }
            let _ = writeln!(text, "  {node} [label={}, fillcolor={}];", quoted(&label), colour(step.mark));
            let _ = writeln!(text, "  {from} -> {node};");
            from = node;
        }
    }
    text.push_str("}\n");
    text
}

fn colour(mark: Mark) -> &'static str {
    match mark {
        Mark::Well => "palegreen",
        Mark::Broken => "salmon",
        Mark::Warning => "khaki",
        Mark::Later => "lightgrey",
        Mark::Unseen | Mark::Unanswered => "white",
    }
}

/// Returns a text as a string of the DOT language.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{text}\"")
}
