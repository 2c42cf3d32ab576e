package rules

import "strings"

// yamlRules documents the codes of this file.
func yamlRules() []Rule { return append(textRules(), structureRules()...) }

// textRules are about bytes, YAML and expressions in it.
func textRules() []Rule {
	return []Rule{
		{
			Code: TooLarge, Title: "the file is too large",
			Why: "A file has at most 1 MiB, 200,000 values and 4 MiB of text once its aliases are expanded. Its uses of templates " +
				"create at most 200,000 values and 4 MiB of expressions, and those of all files five times as much. Without a " +
				"bound, one file could use up the machine that reads it.",
			Before: "handlers: [ …200,001 values… ]",
			After:  "# several files, each with some of the handlers",
		},
		{
			Code: Encoding, Title: "a character that cannot be read",
			Why: "Files are UTF-8. Control characters and unusual line ends are refused, because editors, parsers and stores " +
				"disagree about them.",
			Before: inRequest(`body: "a` + "\x00" + `b"`),
			After:  inRequest(`body: "a b"`),
		},
		{
			Code: Syntax, Title: "the text is not YAML",
			Why: "Nothing of the file can be read. Most often the indentation is wrong, or text with a colon is not in " +
				"quotes.",
			Before: inHandler(`owner: team: orders`),
			After:  inHandler(`owner: "team: orders"`),
		},
		{
			Code: ExprTrap, Title: "YAML changes the expression",
			Why: "Without a block, YAML's own rules apply to the text behind !$. A # after a blank begins a comment, and a " +
				"comma ends an entry of a flow mapping. Quotes, brackets, * and ! mean something else at the beginning. In a block " +
				"every character counts.",
			Before: inHandler(`enabled: !$ event.payload.total > 5 # with the tip`),
			After:  inHandler("enabled: !$ |\n  event.payload.total > 5"),
		},
		{
			Code: SecondDocument, Title: "a second document in the file",
			Why:    "procaas reads only one document of a file. It would ignore the others without a word.",
			Before: "flows: []\n---\npipelines: []\n",
			After:  "flows: []\npipelines: []\n",
		},
		{
			Code: TooDeep, Title: "too many levels of nesting",
			Why:    "Values nest up to 64 levels deep, so that reading them takes bounded memory.",
			Before: inRequest("body: " + strings.Repeat("[", 65) + strings.Repeat("]", 65)),
			After:  inRequest(`body: [[[[]]]]`),
		},
		{
			Code: TooManyAliases, Title: "too many aliases",
			Why:    "A file has up to 100 aliases. A few lines with more of them can stand for gigabytes.",
			Before: inRequest("body: [&n 1" + strings.Repeat(", *n", 101) + "]"),
			After:  inRequest("body: [1" + strings.Repeat(", 1", 101) + "]"),
		},
		{
			Code: SelfAlias, Title: "an alias inside its own value",
			Why:    "The value would contain itself and never end.",
			Before: inRequest(`body: &b {again: *b}`),
			After:  inRequest(`body: {again: null}`),
		},
		{
			Code: UnknownTag, Title: "an unknown tag",
			Why:    "Only !$ and !secret have a meaning. Any other tag would be dropped without a word.",
			Before: inHandler(`enabled: !expr event.payload.ok`),
			After:  inHandler(`enabled: !$ event.payload.ok`),
		},
		{
			Code: MergeKey, Title: "a merge key",
			Why:    "The result of << depends on the order of keys and on the YAML reader. It is not part of YAML 1.2.",
			Before: inRequest(`body: {<<: &b {a: 1}, b: 2}`),
			After:  inRequest(`body: {a: 1, b: 2}`),
		},
		{
			Code: DuplicateKey, Title: "a key is given twice",
			Why:    "Only one of the values could count, and readers of the file would not know which.",
			Before: inHandler("timeout: 1s\ntimeout: 2s"),
			After:  inHandler(`timeout: 2s`),
		},
		{
			Code: Key, Title: "a key that is not text",
			Why:    "Names in data are text. An unquoted 1, true or null is a number, a truth value or nothing.",
			Before: inRequest(`body: {1: one}`),
			After:  inRequest(`body: {"1": one}`),
		},
		{
			Code: Number, Title: "a number that data cannot hold",
			Why:    "Whole numbers have up to 64 bits and are exact. JSON has no infinity and no .nan.",
			Before: inRequest(`body: {id: 99999999999999999999}`),
			After:  inRequest(`body: {id: "99999999999999999999"}`),
		},
		{
			Code: LeadingZero, Title: "a value whose text changes",
			Why: "JSON has only one text for a number. 1.10 becomes 1.1, and 0x1f becomes 31. YAML 1.2 reads 0755 as a decimal number, " +
				"and many other readers as an octal one. Null and True are no text either. Often such a value was meant as text: a version, " +
				"a code, a name.",
			Before: inRequest(`body: {code: 0755}`),
			After:  inRequest(`body: {code: "0755"}`),
		},
		{
			Code: GluedKey, Title: "a key that has its value in it",
			Why:    "Within braces, YAML needs a space behind the colon of a name without quotes. Otherwise all of it is the name, with null.",
			Before: inRequest(`body: {order:1}`),
			After:  inRequest(`body: {order: 1}`),
		},
		{
			Code: EmptyExpr, Title: "an empty expression",
			Why:    "An expression must have a value.",
			Before: inHandler(`enabled: !$`),
			After:  inHandler(`enabled: !$ event.payload.ok`),
		},
		{
			Code: NoExpr, Title: "an expression where none is allowed",
			Why: "Names, policies and limits are fixed before anything runs. So procaas can check them, show them and let " +
				"operators change them.",
			Before: inHandler(`timeout: !$ event.payload.timeout`),
			After:  inHandler(`timeout: 2s`),
		},
		{
			Code: Secret, Title: "a secret where none is allowed",
			Why: "The engine looks a secret up when it makes a call, and never stores or shows it. So a secret may only " +
				"stand in the body of a handler, in the place of text.",
			Before: inHandler(`enabled: !secret PUSH_TOKEN`),
			After:  inRequest(`headers: {Authorization: !secret PUSH_TOKEN}`),
		},
		{
			Code: V1, Title: "a mistake in the first version of the language",
			Why: "The word after a # in a key is an operator: and, contains, not, or, xget. Put a key in quotes when its # " +
				"belongs to the name.",
			Before: inHandler("enabled#any:\n  - value#xget: /event/payload/ok"),
			After:  inHandler("enabled#or:\n  - value#xget: /event/payload/ok"),
		},
		{
			Code: TooManyFindings, Title: "too many findings",
			Why:    "After 200 findings in a file the rest is not shown. Most of them have the same cause.",
			Before: "pipelines: {…}",
			After:  "pipelines: […]",
		},
	}
}

// structureRules are about fields, their kinds and handler types.
func structureRules() []Rule {
	return []Rule{
		{
			Code: UnknownField, Title: "an unknown field",
			Why:    "A mistyped field would have no effect, and nobody would notice.",
			Before: inHandler(`critcal: false`),
			After:  inHandler(`critical: false`),
		},
		{
			Code: Missing, Title: "a field is missing",
			Why:    "The thing cannot work, or cannot be named, without it.",
			Before: "pipelines:\n  - id: new-order\n    stages:\n      - id: notify\n        handlers:\n          - request: {url: http://127.0.0.1:9083/v1/push}\n",
			After:  "pipelines:\n  - id: new-order\n    stages:\n      - id: notify\n        handlers:\n          - id: driver\n            request: {url: http://127.0.0.1:9083/v1/push}\n",
		},
		{
			Code: Kind, Title: "a value of the wrong kind",
			Why:    "A list stands in the place of a mapping, or a mapping in the place of a list.",
			Before: inHandler(`retry: [3]`),
			After:  inHandler(`retry: {attempts: 3}`),
		},
		{
			Code: Value, Title: "a value that the field does not allow",
			Why: "Each field takes certain values. Durations need a unit, some texts are one of a few words, and numbers " +
				"have a range. Run procaas explain with the name of the field.",
			Before: inHandler(`timeout: 5`),
			After:  inHandler(`timeout: 5s`),
		},
		{
			Code: UnknownType, Title: "an unknown handler type",
			Why:    "The key that names the type of a handler is not one of the built-in types.",
			Before: "pipelines:\n  - id: new-order\n    stages:\n      - id: notify\n        handlers:\n          - id: driver\n            reqest: {url: http://127.0.0.1:9083/v1/push}\n",
			After:  "pipelines:\n  - id: new-order\n    stages:\n      - id: notify\n        handlers:\n          - id: driver\n            request: {url: http://127.0.0.1:9083/v1/push}\n",
		},
		{
			Code: TwoTypes, Title: "a handler of two types",
			Why: "A handler does one thing and has one outcome. Fields of a request beside another type would have no " +
				"effect.",
			Before: "pipelines:\n  - id: new-order\n    stages:\n      - id: notify\n        handlers:\n          - id: both\n            request: {url: http://127.0.0.1:9083/v1/push}\n            wait: {for: 5s}\n",
			After:  "pipelines:\n  - id: new-order\n    stages:\n      - id: notify\n        handlers:\n          - id: driver\n            request: {url: http://127.0.0.1:9083/v1/push}\n          - id: pause\n            wait: {for: 5s}\n",
		},
		{
			Code: Forgotten, Title: "text that was meant as an expression",
			Why: "Text is sent as it is written. Without !$ before it, event.payload.id is only letters and dots. No service " +
				"knows that as the id of an order.",
			Before: inRequest("body: {id: event.payload.id}"),
			After:  inRequest("body: {id: !$ event.payload.id}"),
		},
		{
			Code: StageHandler, Title: "a handler in the place of a stage",
			Why: "It works as a stage of one handler with the same id. But readers cannot see whether the author meant a " +
				"stage or a handler.",
			Before: "pipelines:\n  - id: new-order\n    stages:\n      - id: notify\n        request: {url: http://127.0.0.1:9083/v1/push}\n",
			After:  "pipelines:\n  - id: new-order\n    stages:\n      - id: notify\n        handlers:\n          - id: notify\n            request: {url: http://127.0.0.1:9083/v1/push}\n",
		},
	}
}
