//! What the ResourceInterpreterCustomization's scripts answer about WorkloadDeployments.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{Federation, cache::hash, conversion::Shape, lua};

/// What a script is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Dependencies,
    Reflection,
    Aggregation,
    Retention,
}

impl Operation {
    /// Its name in `spec.customizations`, and that of the script's function.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Dependencies => ("dependencyInterpretation", "GetDependencies"),
            Self::Reflection => ("statusReflection", "ReflectStatus"),
            Self::Aggregation => ("statusAggregation", "AggregateStatus"),
            Self::Retention => ("retention", "Retain"),
        }
    }
}

/// The last answer about each object (by uid): every pass asks again, and most of the time nothing has changed.
#[derive(Debug, Default)]
pub(super) struct Interpreter(Mutex<HashMap<(Operation, String), (Question, Answer)>>);

/// Script, object and version that an answer is about.
type Question = String;

/// What comes of asking a script.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// There is none for this operation.
    NoScript,
    /// It does not load, or raises.
    Raised(String),
    /// What it returned.
    Said(Value),
}

impl Federation {
    /// What the script says of this version of the object.
    pub(super) fn interpret(
        &self,
        operation: Operation,
        kind: &str,
        object: &DynamicObject,
        more: Option<&Value>,
    ) -> Answer {
        let (_, function) = operation.names();
        let Some(script) = self.script(operation, kind) else { return Answer::NoScript };
        let rest = hash(&format!("{script}{}", more.map(ToString::to_string).unwrap_or_default()));
        let question = format!("{}/{rest}", object.resource_version().unwrap_or_default());
        let key = (operation, object.uid().unwrap_or_default());
        let mut answers = self.interpreter.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, answer)) = answers.get(&key).filter(|(asked, _)| *asked == question) {
            return answer.clone();
        }
        let object = json!(object);
        let arguments: Vec<&Value> = [&object].into_iter().chain(more).collect();
        let shape = if operation == Operation::Dependencies { Shape::List } else { Shape::Object };
        let answer = match lua::call(&script, function, &arguments, shape, &[]) {
            Ok(said) => Answer::Said(said),
            Err(error) => Answer::Raised(format!("{error:#}")),
        };
        answers.insert(key, (question, answer.clone()));
        answer
    }

    /// What a member is to have, once the script has said what stays as it is there; nothing without a script. Here
    /// alone Karmada has references to tell empty lists from empty objects (fact 74).
    pub(super) fn retain(&self, kind: &str, desired: &Value, observed: &Value) -> anyhow::Result<Option<Value>> {
        let (_, function) = Operation::Retention.names();
        let both = [desired, observed];
        let script = self.script(Operation::Retention, kind);
        script.map(|script| lua::call(&script, function, &both, Shape::Object, &both)).transpose()
    }

    fn script(&self, operation: Operation, kind: &str) -> Option<String> {
        let (name, _) = operation.names();
        self.hub.all("ResourceInterpreterCustomization").iter().find_map(|customization| {
            let spec = &customization.data["spec"];
            let script = spec["customizations"][name]["luaScript"].as_str();
            script.filter(|_| spec["target"]["kind"] == kind).map(str::to_owned)
        })
    }
}
