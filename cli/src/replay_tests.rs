use compute_operator::plan::cell::locations::Observed;
use serde_json::json;

use super::*;

fn line(controller: &str, snapshot: &str, plan: &str) -> String {
    json!({
        "level": "DEBUG", "message": "decided", "controller": controller, "object": "this cell",
        "now": "2026-01-01T12:00:00Z", "snapshot": snapshot, "plan": plan,
    })
    .to_string()
}

#[test]
fn snapshots_of_a_debug_log_are_decided_again() {
    let observed: Observed = serde_json::from_value(sample()).unwrap();
    let snapshot = serde_json::to_string(&observed).unwrap();
    let plan = format!("{:?}", cell::locations::plan(&observed, "2026-01-01T12:00:00Z".parse().unwrap()));
    let log = [
        "not JSON".to_owned(),
        json!({ "level": "INFO", "message": "started" }).to_string(),
        line("locations", &snapshot, &plan),
        line("locations", &snapshot, "Plan { another }"),
        line("locations", "{ \"cut… (cut: longer than 65536 bytes)", &plan),
        line("locations", "{}", &plan),
        line("hub-trouble", &snapshot, &plan),
    ];
    let replay = Replay::of(log.join("\n").as_bytes()).unwrap();
    assert_eq!((replay.decisions.len(), replay.differs()), (5, 1));
    let text = replay.text(Screen::PLAIN);
    assert!(text.contains(&format!("    then  Plan {{ another }}\n    now   {plan}\n")), "{text}");
    assert!(text.contains("not decided: the log has only the beginning of it"), "{text}");
    assert!(text.contains("not decided: this version does not read the snapshot"), "{text}");
    assert!(text.contains("not decided: the decisions of hub-trouble cannot be made"), "{text}");
    assert!(text.ends_with("1 of 2 decisions differ, 3 could not be decided\n"), "{text}");
}

#[test]
fn file_without_decisions_is_refused() {
    assert!(Replay::of(b"{}\nx").is_err());
    assert!(Replay::of(&[0x1f, 0x8b, 0]).is_err());
}

fn sample() -> Value {
    json!({
        "served": { "Ok": ["locations"] }, "watched": [], "unlisted": [], "retry": { "secs": 5, "nanos": 0 },
    })
}
