use std::io::Read;

use super::*;
use crate::{inventory_samples::inventory, replay::Replay, seen::Seen};

/// In every place of the sample where a value can be.
const VALUE: &str = "hunter2-correct-horse";

fn facts(inventory: &Inventory) -> Facts {
    let of = |uid: &str| inventory.objects.iter().find(|entry| entry.uid() == uid).unwrap().object.clone();
    let deployment = serde_json::json!({
        "object": of("d"), "instances": { "Found": [of("i")] }, "hub_namespace": "ns-1",
        "copy": { "Found": of("d-hub") }, "policy": "Absent", "binding": { "Unanswered": format!("bad {VALUE}") },
        "companions": {}, "cells": { "cell-dfw": { "Found": of("d-cell") } },
    });
    serde_json::from_value(serde_json::json!({
        "now": "2026-01-01T12:00:00Z", "context": "shop", "namespace": "demo", "name": "hello",
        "workload": { "Found": of("w") }, "deployments": { "Found": [deployment] }, "clusters": "Unknown",
    }))
    .unwrap()
}

fn unpacked(bytes: &[u8]) -> Files {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes));
    let files = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let (mut text, name) = (String::new(), entry.path().unwrap().display().to_string());
        entry.read_to_string(&mut text).unwrap();
        (name, text)
    });
    files.collect()
}

#[test]
fn archive_has_no_value_of_any_place() {
    let inventory = inventory(VALUE);
    let planted = serde_json::to_string(&inventory).unwrap().matches(VALUE).count();
    assert!(planted > 60, "the sample has it {planted} times");
    let (files, removed) = files(&inventory, &facts(&inventory)).unwrap();
    let bytes = archive("hello", &files, inventory.now).unwrap();
    let files = unpacked(&bytes);
    for (name, text) in &files {
        assert!(!text.contains(VALUE), "{name}:\n{text}");
        assert!(!text.contains("managedFields:") && !text.contains("\"managedFields\""), "{name}");
    }
    assert!(removed > 40, "{removed}");
    let own = ["MANIFEST.txt", "trace.txt", "trace.json", "events.txt", "events.jsonl", "tree.txt"];
    let objects = files.keys().filter(|name| name.starts_with("hello/objects/")).count();
    assert_eq!((files.len(), objects), (own.len() + inventory.objects.len(), inventory.objects.len()));
    for name in own {
        assert!(files.contains_key(&format!("hello/{name}")), "{name}: {:?}", files.keys());
    }
    let workload = &files["hello/objects/project/workload-demo-hello.yaml"];
    for kept in ["PASSWORD", "configMapKeyRef", "instanceType", "NotApplied", "(removed)"] {
        assert!(workload.contains(kept), "{kept}: {workload}");
    }
    let manifest = &files["hello/MANIFEST.txt"];
    for line in ["  cell-dfw: 1 NetworkBinding", "  hub: Instances: no answer: bad (removed)", "  environment: "] {
        assert!(manifest.contains(line), "{line}: {manifest}");
    }
}

#[test]
fn stored_facts_give_the_stored_trace_again() {
    let inventory = inventory(VALUE);
    let (files, _) = files(&inventory, &facts(&inventory)).unwrap();
    let bytes = archive("hello", &files, inventory.now).unwrap();
    let replay = Replay::of(&bytes).unwrap();
    assert_eq!(replay.differs(), 0, "{replay:?}");
    assert_eq!(replay.decisions.len(), 2, "the Workload and one deployment");
    assert!(files["trace.txt"].contains("NotApplied"), "{}", files["trace.txt"]);
    // A record of another version, which judged otherwise.
    let mut recorded: Recorded = serde_json::from_str(&files["trace.json"]).unwrap();
    recorded.trace.ways[0].broken = None;
    let text = serde_json::to_string(&recorded).unwrap();
    let bytes = archive("x", &Files::from([("trace.json".to_owned(), text)]), inventory.now).unwrap();
    let replay = Replay::of(&bytes).unwrap();
    assert_eq!(replay.differs(), 1);
    let text = replay.text(Screen::PLAIN);
    assert!(text.contains("    then  ready\n    now   NotApplied at cell, waits for platform: "), "{text}");
    assert!(text.ends_with("1 of 2 decisions differ\n"), "{text}");
}

#[test]
fn object_that_is_not_understood_keeps_only_its_metadata() {
    let mut inventory = inventory(VALUE);
    inventory.objects[0].object["spec"] = serde_json::json!({ "template": [VALUE], "placements": VALUE });
    let (files, _) = files(&inventory, &Facts { workload: Seen::Absent, ..facts(&self::inventory(VALUE)) }).unwrap();
    let workload = &files["objects/project/workload-demo-hello.yaml"];
    assert!(workload.contains("not understood") && !workload.contains(VALUE), "{workload}");
}
