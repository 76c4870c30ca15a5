//! Compares today's plans with those recorded before the redesign. This test is removed with the last step of the redesign.
//!
//! The debug log of an operator has every decision: the snapshot and the plan. `tests/oracle/record` runs tests, keeps these logs
//! and draws the sample `looks.jsonl` from them. The sample has some snapshots of different form for each form of a controller's
//! plan. If a plan of today differs from the recorded one, `differences.txt` lists the difference and its reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod look;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::DefaultHasher},
    fmt::Debug,
    fs::File,
    hash::{Hash, Hasher},
    io::{BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use compute_operator::plan::{
    cell::{instance, instances, locations, quota, reclaim, write_back},
    management::{
        city_policy::{migration::probe, policy},
        collector::collect,
        drain::cities,
        federator::federate,
        projector::{dead_claim, leftover, projection},
        referenced_data::companion,
        workload::fan_out,
    },
};
use jiff::Timestamp;
use look::Look;
use serde::{Serialize, de::DeserializeOwned};

/// Size of the sample, in bytes of snapshots and plans.
const SAMPLE: usize = 4 << 20;

/// Largest number of decisions in the sample for one form of a plan.
const OF_ONE_FORM: usize = 6;

/// Largest number of bytes read from one log.
const READ_OF_ONE_LOG: u64 = 2 << 20;

/// Largest number of decisions read for one form of a plan. Most of them are alike.
const READ_OF_ONE_FORM: usize = 64;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle").join(name)
}

/// Runs today's plan on a recorded snapshot. `None` if the plan of its controller needs more than the snapshot.
fn decided(look: &Look) -> Option<Result<String, String>> {
    Some(match look.controller.as_str() {
        "workload" => again(look, fan_out::plan),
        "workload-deployment-federator" => again(look, federate::plan),
        "collector" => again(look, collect::plan),
        "referenced-data" => again(look, companion::plan),
        "city-policy" => again(look, policy::plan),
        "propagation-probe" => again(look, probe::plan),
        "instance-projector" => again(look, projection::plan),
        "dead-claim" => again(look, dead_claim::plan),
        "leftover" => again(look, leftover::plan),
        "city-drains" => again(look, cities::plan),
        "workload-deployment" => again(look, instances::plan),
        "instance" => again(look, instance::plan),
        "quota" => again(look, quota::plan),
        "quota-reclaim" => again(look, reclaim::plan),
        "write-back" => again(look, write_back::plan),
        "locations" => again(look, locations::plan),
        _ => return None,
    })
}

fn again<O: Serialize + DeserializeOwned, P: Debug>(
    look: &Look,
    plan: impl FnOnce(&O, Timestamp) -> P,
) -> Result<String, String> {
    let observed: O = serde_json::from_str(&look.snapshot).map_err(|error| format!("cannot be read: {error}"))?;
    Ok(format!("{:?}", plan(&observed, look.now.parse().unwrap())))
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Hashes the words of a text. Words with digits are left out, because names, versions and times differ in every run.
fn form(text: &str) -> u64 {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    hash(&words.collect::<BTreeSet<_>>())
}

fn sample() -> Vec<Look> {
    let text = std::fs::read_to_string(file("looks.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the reason of each accepted difference, by decision.
fn differences() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(file("differences.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(look, reason)| (look.to_owned(), reason.to_owned()))
        .collect()
}

/// Returns the part of two texts in which they differ.
fn difference<'a>(was: &'a str, is: &'a str) -> (&'a str, &'a str) {
    let at = was.bytes().zip(is.bytes()).take_while(|(was, is)| was == is).count().saturating_sub(80);
    let excerpt = |text: &'a str| {
        let start = text.floor_char_boundary(at);
        &text[start..text.floor_char_boundary(start + 400)]
    };
    (excerpt(was), excerpt(is))
}

/// Fields of plans that were added or removed on purpose, each with its reason. The comparison leaves them out.
const FIELDS: [(&str, &str); 4] = [
    ("\"lastDelivery\"", "the status records the last delivery"),
    ("last_delivery", "it was kept in memory, and the status has it now"),
    ("delivered_before", "it replaces the record in memory"),
    ("quiet", "it was read back from the condition's message"),
];

/// Removes a field from a plan, at any depth.
fn without_field(plan: &str, field: &str) -> String {
    let (mut left, start) = (plan.to_owned(), format!("{field}: "));
    while let Some(at) = left.find(&start) {
        let (mut depth, mut quoted, mut escaped) = (0_i32, false, false);
        let value = &left[at + start.len()..];
        let end = value.char_indices().find(|(_, c)| {
            let is_end = !quoted && depth == 0 && [',', '}', ']', ')'].contains(c);
            match c {
                '"' if !escaped => quoted = !quoted,
                '{' | '[' | '(' if !quoted => depth += 1,
                '}' | ']' | ')' if !quoted => depth -= 1,
                _ => {}
            }
            escaped = *c == '\\' && !escaped;
            is_end
        });
        let end = at + start.len() + end.map_or(value.len(), |(at, _)| at);
        let from = left[..at].trim_end().strip_suffix(',').map_or(at, str::len);
        let rest = left[end..].strip_prefix(", ").filter(|_| from == at).unwrap_or(&left[end..]).trim_start();
        let blank = if rest.starts_with('}') && !left[..from].ends_with(' ') { " " } else { "" };
        left = format!("{}{blank}{rest}", &left[..from]);
    }
    left
}

/// Removes all [`FIELDS`] from a plan.
fn compared(plan: &str) -> String {
    FIELDS.iter().fold(plan.to_owned(), |plan, (field, _)| without_field(&plan, field))
}

#[test]
fn field_at_any_depth_of_a_plan_is_removed() {
    let plan = r#"Blocked { reason: "a, b", quiet: Some(X { y: ["}", 1] }), silent: true }, Other { quiet: false }"#;
    assert_eq!(without_field(plan, "quiet"), r#"Blocked { reason: "a, b", silent: true }, Other { }"#);
}

#[test]
fn plan_of_every_recorded_decision_is_unchanged_or_listed() {
    let (wanted, mut differ) = (differences(), BTreeMap::new());
    let looks = sample();
    for look in &looks {
        let is = decided(look).expect("the sample has only decidable snapshots");
        if is.as_ref().map(|is| compared(is)) != Ok(compared(&look.plan)) {
            differ.insert(format!("{} {:016x}", look.controller, hash(look)), (look, is));
        }
    }
    let unwanted: Vec<_> = differ.iter().filter(|(look, _)| !wanted.contains_key(*look)).collect();
    for (name, (look, is)) in unwanted.iter().take(10) {
        let is = is.as_ref().unwrap_or_else(|error| error);
        let (before, now) = difference(&look.plan, is);
        eprintln!("{name}\n  was: {before}\n  is:  {now}\n");
    }
    assert!(unwanted.is_empty(), "{} of {} plans differ without a reason", unwanted.len(), looks.len());
    let gone: Vec<_> = wanted.keys().filter(|look| !differ.contains_key(*look)).collect();
    assert!(gone.is_empty(), "these do not differ: {gone:#?}");
}

/// Decisions by controller and form of their plan.
#[derive(Default)]
struct Forms(HashMap<(String, u64), Form>);

#[derive(Default)]
struct Form {
    /// The number of decisions of this form that were read.
    read: usize,
    /// The shortest decision for each kept form of the snapshot.
    kept: BTreeMap<u64, Look>,
}

impl Forms {
    fn add(&mut self, look: Look) {
        let of = self.0.entry((look.controller.clone(), form(&look.plan))).or_default();
        of.read += 1;
        if of.read > READ_OF_ONE_FORM {
            return;
        }
        let known = form(&look.snapshot);
        match of.kept.get_mut(&known) {
            Some(kept) if kept.snapshot.len() <= look.snapshot.len() => {}
            // A truncated snapshot does not give the recorded plan.
            _ if decided(&look).is_none_or(|plan| plan.as_ref() != Ok(&look.plan)) => {}
            Some(kept) => *kept = look,
            // The order of the hashes makes a random choice.
            None => {
                of.kept.insert(known, look);
                if of.kept.len() > OF_ONE_FORM {
                    of.kept.pop_last();
                }
            }
        }
    }

    /// Draws one decision of each controller in turn until the sample is full. Each controller goes through its forms in turn.
    fn sample(self) -> Vec<Look> {
        let mut controllers = BTreeMap::<String, Vec<(u64, BTreeMap<u64, Look>)>>::new();
        for ((controller, form), looks) in self.0 {
            controllers.entry(controller).or_default().push((form, looks.kept));
        }
        let in_turn = |mut forms: Vec<(u64, BTreeMap<u64, Look>)>| {
            forms.sort_by_key(|(form, _)| *form);
            let mut forms: Vec<_> = forms.into_iter().map(|(_, looks)| looks.into_values()).collect();
            let rounds = (0..OF_ONE_FORM).map(|_| forms.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>());
            rounds.collect::<Vec<_>>().into_iter().flatten()
        };
        let mut controllers: Vec<_> = controllers.into_values().map(in_turn).collect();
        let (mut looks, mut bytes) = (Vec::new(), 0);
        while !controllers.is_empty() {
            controllers.retain_mut(|of_one| {
                let Some(look) = of_one.next() else { return false };
                let size = look.snapshot.len() + look.plan.len();
                if bytes + size <= SAMPLE {
                    bytes += size;
                    looks.push(look);
                }
                true
            });
        }
        looks
    }
}

/// Draws the sample from the logs of `tests/oracle/record`.
#[test]
#[ignore = "writes looks.jsonl, from the folder in RECORD"]
fn sample_is_drawn_from_the_recorded_logs() {
    let folder = look::folder().expect("RECORD names a folder of logs");
    let mut forms = Forms::default();
    // A restarted operator has several names for one log.
    let mut read = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = File::open(entry.unwrap().path()).unwrap();
        if !read.insert(file.metadata().unwrap().ino()) {
            continue;
        }
        let log = BufReader::new(file.take(READ_OF_ONE_LOG));
        for look in log.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()) {
            forms.add(look);
        }
    }
    let looks = forms.sample();
    let mut each = BTreeMap::<&str, usize>::new();
    for look in &looks {
        *each.entry(&look.controller).or_default() += 1;
    }
    eprintln!("in the sample: {each:#?}");
    let lines: Vec<String> = looks.iter().map(|look| serde_json::to_string(look).unwrap()).collect();
    std::fs::write(file("looks.jsonl"), lines.join("\n")).unwrap();
}
