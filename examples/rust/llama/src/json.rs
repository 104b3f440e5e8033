//! JSON as config.json and the headers of safetensors files have it.
use std::collections::BTreeMap;

#[derive(Debug, PartialEq)]
pub enum Json {
    Null,
    Flag(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// Fails with what was expected at which byte.
    pub fn parse(text: &[u8]) -> Result<Json, String> {
        let mut reader = Reader { text, at: 0, depth: 0 };
        let value = reader.value()?;
        match reader.peek() {
            None => Ok(value),
            Some(_) => Err(reader.expected("the end")),
        }
    }

    /// A member of an object that is there and not null.
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.get(key).filter(|value| **value != Json::Null),
            _ => None,
        }
    }

    pub fn number(&self) -> Option<f64> {
        if let Json::Number(value) = self { Some(*value) } else { None }
    }

    pub fn integer(&self) -> Option<usize> {
        self.number().filter(|value| *value >= 0.0 && value.fract() == 0.0 && *value < 9e15).map(|value| value as usize)
    }

    pub fn flag(&self) -> Option<bool> {
        if let Json::Flag(value) = self { Some(*value) } else { None }
    }

    pub fn text(&self) -> Option<&str> {
        if let Json::Text(value) = self { Some(value) } else { None }
    }

    pub fn integers(&self) -> Option<Vec<usize>> {
        if let Json::List(items) = self { items.iter().map(Json::integer).collect() } else { None }
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn expected(&self, what: &str) -> String {
        format!("expected {what} at byte {}", self.at)
    }

    /// The next byte behind white space, which stays.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn accept(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: u8) -> Result<(), String> {
        if self.accept(wanted) { Ok(()) } else { Err(self.expected(&format!("'{}'", wanted as char))) }
    }

    fn value(&mut self) -> Result<Json, String> {
        self.depth += 1;
        if self.depth > 64 {
            return Err(self.expected("no more than 64 levels"));
        }
        let value = match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.list(),
            Some(b'"') => self.string().map(Json::Text),
            _ => self.word(),
        };
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Result<Json, String> {
        let mut members = BTreeMap::new();
        self.expect(b'{')?;
        if self.accept(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            members.insert(key, self.value()?);
            if !self.accept(b',') {
                break;
            }
        }
        self.expect(b'}').map(|()| Json::Object(members))
    }

    fn list(&mut self) -> Result<Json, String> {
        let mut items = Vec::new();
        self.expect(b'[')?;
        if self.accept(b']') {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value()?);
            if !self.accept(b',') {
                break;
            }
        }
        self.expect(b']').map(|()| Json::List(items))
    }

    /// Escapes of one letter become that letter: names of tensors have no others.
    fn string(&mut self) -> Result<String, String> {
        self.expect(b'"')?;
        let mut bytes = Vec::new();
        while let Some(&byte) = self.text.get(self.at).filter(|byte| **byte != b'"') {
            self.at += 1;
            if byte != b'\\' {
                bytes.push(byte);
            } else if let Some(&escaped) = self.text.get(self.at) {
                self.at += 1;
                bytes.push(escaped);
            }
        }
        self.expect(b'"')?;
        String::from_utf8(bytes).map_err(|_| self.expected("UTF-8 in front of the quote"))
    }

    /// true, false, null and numbers.
    fn word(&mut self) -> Result<Json, String> {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|byte| b",]} \n\t\r".contains(byte)).unwrap_or(rest.len());
        let value = match &rest[..length] {
            b"true" => Some(Json::Flag(true)),
            b"false" => Some(Json::Flag(false)),
            b"null" => Some(Json::Null),
            word => std::str::from_utf8(word).ok().and_then(|text| text.parse().ok()).map(Json::Number),
        };
        let value = value.ok_or_else(|| self.expected("a value"))?;
        self.at += length;
        Ok(value)
    }
}
