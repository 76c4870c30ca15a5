//! A part of an object as JSON.

use serde::{
    Serialize,
    ser::{Error as _, Impossible, SerializeStruct, Serializer},
};
use serde_json::{Error, Map, Value};

/// Returns these members of `object` as JSON, of the object itself and not of what is in it. The other members are not encoded:
/// a look at the status of a deployment needs none of its template. The field managers are left out of its metadata, because their
/// sets of fields are often longer than the rest. `None` if it does not encode as a struct.
pub fn members(object: &impl Serialize, names: &Map<String, Value>) -> Option<Value> {
    object.serialize(Members(Names::Only(names))).ok()
}

/// The members that are encoded.
#[derive(Clone, Copy)]
enum Names<'a> {
    Only(&'a Map<String, Value>),
    AllBut(&'static str),
}

impl Names<'_> {
    fn contain(self, name: &str) -> bool {
        match self {
            Self::Only(names) => names.contains_key(name),
            Self::AllBut(other) => name != other,
        }
    }

    /// True if `name` is a member of the object itself, and not of its metadata.
    fn are_of_object(self) -> bool {
        matches!(self, Self::Only(_))
    }
}

struct Members<'a>(Names<'a>);

struct Struct<'a> {
    names: Names<'a>,
    found: Map<String, Value>,
}

impl SerializeStruct for Struct<'_> {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        if self.names.contain(name) {
            let member = if name == "metadata" && self.names.are_of_object() {
                value.serialize(Members(Names::AllBut("managedFields")))?
            } else {
                serde_json::to_value(value)?
            };
            self.found.insert(name.to_owned(), member);
        }
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        Ok(Value::Object(self.found))
    }
}

/// Refuses everything that is not a struct.
macro_rules! refuse {
    ($($name:ident($($type:ty),*) -> $ok:ty;)*) => {
        $(fn $name(self, $(_: $type),*) -> Result<$ok, Error> {
            Err(Error::custom("not a struct"))
        })*
    };
}

type Never = Impossible<Value, Error>;

impl<'a> Serializer for Members<'a> {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = Never;
    type SerializeTuple = Never;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Never;
    type SerializeStruct = Struct<'a>;
    type SerializeStructVariant = Never;

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Struct<'a>, Error> {
        Ok(Struct { names: self.0, found: Map::new() })
    }

    refuse! {
        serialize_bool(bool) -> Value;
        serialize_i8(i8) -> Value;
        serialize_i16(i16) -> Value;
        serialize_i32(i32) -> Value;
        serialize_i64(i64) -> Value;
        serialize_u8(u8) -> Value;
        serialize_u16(u16) -> Value;
        serialize_u32(u32) -> Value;
        serialize_u64(u64) -> Value;
        serialize_f32(f32) -> Value;
        serialize_f64(f64) -> Value;
        serialize_char(char) -> Value;
        serialize_str(&str) -> Value;
        serialize_bytes(&[u8]) -> Value;
        serialize_none() -> Value;
        serialize_unit() -> Value;
        serialize_unit_struct(&'static str) -> Value;
        serialize_unit_variant(&'static str, u32, &'static str) -> Value;
        serialize_seq(Option<usize>) -> Never;
        serialize_tuple(usize) -> Never;
        serialize_tuple_struct(&'static str, usize) -> Never;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Never;
        serialize_map(Option<usize>) -> Never;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Never;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<Value, Error> {
        Err(Error::custom("not a struct"))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Value, Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Value, Error> {
        Err(Error::custom("not a struct"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::compute::{Workload, WorkloadDeployment};

    #[test]
    fn members_are_those_of_the_whole_object() {
        let text = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
            "metadata": {
                "name": "web", "generation": 2, "labels": { "a": "b" },
                "managedFields": [{ "manager": "m", "operation": "Apply" }],
            },
            "spec": {
                "workloadRef": { "name": "web", "uid": "w" }, "placementName": "p", "cityCode": "dfw", "replicas": 2,
                "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
                "scaleSettings": { "minReplicas": 2 },
            },
            "status": { "replicas": 2, "conditions": [] },
        });
        let deployment: WorkloadDeployment = serde_json::from_value(text).unwrap();
        let mut whole = serde_json::to_value(&deployment).unwrap();
        assert!(whole["metadata"].as_object_mut().unwrap().remove("managedFields").is_some());
        for names in
            [vec!["status"], vec!["metadata", "spec"], vec!["apiVersion", "kind", "metadata", "spec", "status"], vec![]]
        {
            let asked: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
            let expected: Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), whole[*name].clone())).collect();
            assert_eq!(members(&deployment, &asked), Some(Value::Object(expected)));
        }
        let without_status = Workload::new("web", crate::api::compute::WorkloadSpec::default());
        let asked = json!({ "status": {} });
        assert_eq!(members(&without_status, asked.as_object().unwrap()), Some(json!({})), "as in the whole object");
        assert_eq!(members(&json!({ "status": 1 }), asked.as_object().unwrap()), None, "not a struct");
    }
}
