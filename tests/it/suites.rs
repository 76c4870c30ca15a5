//! The chainsaw suites of `e2e/suites`, run on the testbed. The test uses chainsaw if `CHAINSAW` names it or it is on the `PATH`.
//! Otherwise it uses a reader for the part of chainsaw's language that the suites need.
//!
//! `.ci/tools` builds chainsaw. The reader checks the suites in every test run, and fails on anything that it does not know. It
//! is not extended: a suite that needs more of the language needs chainsaw.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{
    RUNTIME, World,
    beds::{Wish, alone},
    delete, eventually, get, path, skipped,
};
use kube::Client;
use serde_json::{Value, json};
use testbed::pki::User;

struct Run<'a> {
    world: &'a World,
    namespace: String,
    bindings: BTreeMap<String, String>,
}

/// Returns the folders of the suites.
fn suites() -> Vec<PathBuf> {
    let mut suites: Vec<_> = fs::read_dir(path("e2e/suites")).unwrap().map(|entry| entry.unwrap().path()).collect();
    suites.sort();
    assert!(suites.len() >= 4);
    suites
}

#[test]
fn suites_pass_the_chainsaw_linter() {
    let Some(program) = testbed::chainsaw::find() else {
        skipped("chainsaw is not on the PATH and not in CHAINSAW; .ci/tools installs it");
        return;
    };
    let suites = suites().into_iter().map(|suite| ("test", suite.join("chainsaw-test.yaml")));
    let mut wrong = Vec::new();
    for (what, file) in suites.chain([("configuration", path("e2e/chainsaw-config.yaml"))]) {
        wrong.extend(
            testbed::chainsaw::lint(&program, what, &file).unwrap().map(|why| format!("{}: {why}", file.display())),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn suites_pass_on_the_testbed() {
    RUNTIME.block_on(async {
        // The Deployments set this flag.
        let flags = vec!["--leader-elect".to_owned()];
        let mut lent = alone(Wish { provider: false, flags, ..Wish::default() }).await;
        let world = &mut *lent;
        if let Some(program) = testbed::chainsaw::find() {
            let processes = |world: &World| world.operators.iter().map(|one| one.process.pid()).collect::<Vec<_>>();
            let before = processes(world);
            let suites = testbed::chainsaw::Run { program, gated: false, more: &[], shown: false };
            suites.on(&world.bed, &mut world.operators).await.unwrap();
            let are_others: Vec<bool> =
                processes(world).iter().zip(before).map(|(now, before)| *now != before).collect();
            assert_eq!(are_others, [true, true, false], "suites restart management and dfw, not ord");
            return;
        }
        for suite in suites() {
            let name = suite.file_name().unwrap().to_str().unwrap().to_owned();
            if fs::read_to_string(suite.join("chainsaw-test.yaml")).unwrap().contains("\n    needs: chainsaw\n") {
                skipped(&format!("suite {name} needs chainsaw, which is not on the PATH; .ci/tools installs it"));
                continue;
            }
            eprintln!("suite {name}");
            let (namespace, _) = world.namespace("chainsaw").await;
            let mut run = Run { world, namespace: namespace.clone(), bindings: BTreeMap::new() };
            run.suite(&suite.join("chainsaw-test.yaml"), &name).await;
            delete(&world.project, "Namespace", "", &namespace).await;
        }
    });
}

impl Run<'_> {
    async fn suite(&mut self, file: &Path, name: &str) {
        let test = testbed::manifests::documents(&fs::read_to_string(file).unwrap()).unwrap().remove(0);
        assert_eq!(test["metadata"]["name"], name, "a suite is named after its folder");
        for step in test["spec"]["steps"].as_array().unwrap() {
            self.bindings.clear(); // outputs live as long as their step
            for operation in step["try"].as_array().unwrap() {
                let (verb, arguments) = operation.as_object().unwrap().iter().next().unwrap();
                let what = format!("{name}: {}: {verb}", step["name"]);
                self.operation(verb, arguments, &what).await;
            }
        }
    }

    async fn operation(&mut self, verb: &str, arguments: &Value, what: &str) {
        let client = self.client(arguments["cluster"].as_str()).clone();
        match verb {
            "script" => self.script(arguments),
            "apply" => {
                let mut object = self.bound(&arguments["resource"]);
                object["metadata"]["namespace"] = json!(self.namespace);
                crate::common::apply(&client, object).await;
            }
            "delete" => {
                let reference = &arguments["ref"];
                let (kind, name) = (reference["kind"].as_str().unwrap(), reference["name"].as_str().unwrap());
                delete(&client, kind, &self.namespace, name).await;
                eventually(what, || async {
                    match get(&client, kind, &self.namespace, name).await {
                        None => Ok(()),
                        Some(_) => Err("still there".into()),
                    }
                })
                .await;
            }
            "assert" | "error" => {
                let expected = self.bound(&arguments["resource"]);
                let kind = expected["kind"].as_str().unwrap().to_owned();
                let namespace = expected["metadata"]["namespace"].as_str().unwrap_or(&self.namespace).to_owned();
                let name = expected["metadata"]["name"].as_str().unwrap().to_owned();
                eventually(what, || async {
                    let live = get(&client, &kind, &namespace, &name).await.map(|o| serde_json::to_value(o).unwrap());
                    let found = match &live {
                        None => Err(format!("no {kind} {namespace}/{name}")),
                        // A GET of one object returns kind and apiVersion.
                        Some(live) => matches(live, &expected, "").map_err(|at| format!("{at} in {live}")),
                    };
                    match (verb, found) {
                        ("assert", found) => found,
                        (_, Ok(())) => Err("it is there".into()),
                        (_, Err(_)) => Ok(()),
                    }
                })
                .await;
            }
            other => panic!("{what}: {other} is not known to this reader"),
        }
    }

    fn script(&mut self, arguments: &Value) {
        let kubectl = testbed::binaries::find_with_kubectl(&|_| ()).unwrap();
        let out = Command::new("sh")
            .args(["-c", arguments["content"].as_str().unwrap()])
            .env("PATH", format!("{}:{}", kubectl.display(), std::env::var("PATH").unwrap()))
            .env("KUBECONFIG", self.world.bed.project.kubeconfig(&User::Admin))
            .env("NAMESPACE", &self.namespace)
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        for output in arguments["outputs"].as_array().into_iter().flatten() {
            assert_eq!(output["value"], "($stdout)");
            let text = String::from_utf8(out.stdout.clone()).unwrap().trim().to_owned();
            self.bindings.insert(format!("(${})", output["name"].as_str().unwrap()), text);
        }
    }

    fn client(&self, cluster: Option<&str>) -> &Client {
        match cluster {
            None => &self.world.project,
            Some("downstream") => &self.world.hub,
            Some("pop-dfw") => &self.world.dfw,
            Some("pop-ord") => &self.world.ord,
            Some(other) => panic!("no cluster {other}"),
        }
    }

    /// Replaces every `($name)` by its value.
    fn bound(&self, value: &Value) -> Value {
        match value {
            Value::String(text) if text.starts_with("($") => {
                json!(self.bindings.get(text).unwrap_or_else(|| panic!("{text} is not bound")))
            }
            Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), self.bound(value))).collect(),
            Value::Array(list) => list.iter().map(|value| self.bound(value)).collect(),
            other => other.clone(),
        }
    }
}

/// Compares with chainsaw's assertion trees: maps by subset, lists in full, keys in parentheses as expressions.
fn matches(live: &Value, expected: &Value, at: &str) -> Result<(), String> {
    match (live, expected) {
        (live, Value::Object(map)) => {
            map.iter().try_for_each(|(key, expected)| matches(&evaluate(live, key), expected, &format!("{at}.{key}")))
        }
        (Value::Array(live), Value::Array(expected)) if live.len() == expected.len() => {
            live.iter().zip(expected).try_for_each(|(l, e)| matches(l, e, &format!("{at}[]")))
        }
        (live, expected) if live == expected => Ok(()),
        (live, expected) => Err(format!("{at} is {live}, not {expected}")),
    }
}

/// Evaluates a key, or one of two forms of expression. `(length(x))` is null without a list, unless it ends with ``x || `[]` ``.
/// The other form is `(x[?y == 'z'])`.
fn evaluate(live: &Value, key: &str) -> Value {
    let Some(expression) = key.strip_prefix('(').and_then(|k| k.strip_suffix(')')) else { return live[key].clone() };
    if let Some(field) = expression.strip_prefix("length(").and_then(|e| e.strip_suffix(')')) {
        let (field, default) = field.strip_suffix(" || `[]`").map_or((field, None), |field| (field, Some(0)));
        return json!(live[field].as_array().map(Vec::len).or(default));
    }
    let (list, filter) = expression.split_once("[?").unwrap_or_else(|| panic!("{key} is not known to this reader"));
    let (field, value) = filter.trim_end_matches(']').split_once(" == ").unwrap();
    let wanted = json!(value.trim_matches('\''));
    let items = live[list].as_array().cloned().unwrap_or_default();
    items.into_iter().filter(|item| item[field] == wanted).collect()
}
