//! Long texts of a tenant: every write stays small.

use proptest::{prelude::*, sample::select};

use super::*;

/// Maximum number of bytes of one annotation of ours, and of the message of a condition.
const MAX: usize = 8 << 10;

/// A container with this number of variables of one Secret. The first has its own name.
fn spec_of(env: usize, first: &str, secret: &str) -> Value {
    let one = |n: usize| {
        let name = if n == 0 { first.to_owned() } else { format!("SETTING_{n}_OF_THE_APPLICATION") };
        json!({ "name": name, "valueFrom": { "secretKeyRef": { "name": secret, "key": "k" } } })
    };
    json!({
        "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [{
            "name": "web", "image": "i", "env": (0..env).map(one).collect::<Vec<_>>(),
        }] } },
        "networkInterfaces": [],
    })
}

/// Returns every annotation and every condition's message of a write.
fn texts(body: &Value) -> Vec<String> {
    let annotations = body["metadata"]["annotations"].as_object().into_iter().flatten();
    let annotations = annotations.filter_map(|(_, value)| Some(value.as_str()?.to_owned()));
    let conditions = body["status"]["conditions"].as_array().into_iter().flatten();
    let messages = conditions.filter_map(|condition| Some(condition["message"].as_str()?.to_owned()));
    annotations.chain(messages).collect()
}

fn longest(wd: &WorkloadDeployment, secret: &str, source: resolve::Source) -> usize {
    let sources = [(DataRef::secret(secret), source)].into();
    let data = resolve::View { sources, ..resolve::View::default() };
    let live = copy_of(&marked());
    let mut longest = 0;
    for copy in [None, Some(live)] {
        let observed = Observed { data: data.clone(), ..observed(wd, Some("n1"), Some(namespace()), copy) };
        for step in plan(&observed, NOW).steps {
            let (asked, object) = match &step {
                Step::Local(write) => (write.op.asked(), &write.object),
                Step::Remote(write) => (write.op.asked(), &write.object),
            };
            let all = asked.as_deref().map(texts).unwrap_or_default();
            longest = all.iter().map(String::len).chain([longest]).max().unwrap_or(0);
            assert!(longest < MAX, "{object} has a text of {longest} bytes");
        }
    }
    longest
}

fn deployment_of(spec: Value) -> WorkloadDeployment {
    let mut wd = marked();
    wd.spec.template.spec = serde_json::from_value(spec).unwrap();
    wd
}

/// A message that named each field was larger than the limit of all annotations of an object. The deployment was no longer
/// federated, and nothing reported it.
#[test]
fn federator_thousands_of_fields_of_one_absent_secret_make_short_texts() {
    let wd = deployment_of(spec_of(8000, "FIRST", "db"));
    assert!(longest(&wd, "db", resolve::Source::Absent) > 100, "over the limit");
    let few = deployment_of(spec_of(128, "FIRST", "db"));
    assert!(longest(&few, "db", resolve::Source::Absent) > 100, "at the limit");
    let [reference] = &crate::plan::references::references(&wd.spec.template.spec)[..] else { panic!("one Secret") };
    assert_eq!(
        reference.asking(),
        "container web: env FIRST, container web: env SETTING_1_OF_THE_APPLICATION, \
         container web: env SETTING_2_OF_THE_APPLICATION and 7997 more fields"
    );
}

#[test]
fn federator_name_of_250_kib_makes_short_texts() {
    let name = "N".repeat(250 << 10);
    longest(&deployment_of(spec_of(2, &name, "db")), "db", resolve::Source::Absent);
    longest(&deployment_of(spec_of(2, "N", &name)), &name, resolve::Source::Absent);
    let words = resolve::Source::Unauthorized("no ".repeat(100_000));
    longest(&deployment_of(spec_of(2, "N", "db")), "db", words);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn federator_hostile_names_and_answers_make_short_texts(
        env in 1usize..20,
        unit in select(&["a", "\u{1}", "\"", "ü", "𝄞", ": "][..]),
        [first, secret, words] in prop::array::uniform3(0usize..40_000),
    ) {
        let secret = unit.repeat(secret) + "s";
        let wd = deployment_of(spec_of(env, &unit.repeat(first), &secret));
        for source in [
            resolve::Source::Unknown,
            resolve::Source::Absent,
            resolve::Source::Taken,
            resolve::Source::Unauthorized(unit.repeat(words)),
            resolve::Source::Refused(unit.repeat(words)),
            resolve::Source::Present { size: u64::MAX },
        ] {
            longest(&wd, &secret, source);
        }
    }
}
