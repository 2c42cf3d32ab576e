package dsl

// The codes of findings in expressions.
const (
	CodeSyntax          Code = "PC0300" // the text is no expression
	CodeTooLarge        Code = "PC0301" // too long, too deep or too many parts
	CodeForeign         Code = "PC0302" // something that only other languages have
	CodeAssign          Code = "PC0303" // = instead of ==
	CodeSlashes         Code = "PC0304" // a Python division, or a comment
	CodeChain           Code = "PC0305" // a < b < c
	CodeUnknownName     Code = "PC0310" // nothing has the name
	CodeHyphen          Code = "PC0311" // a-b where a - b is meant
	CodeUndeclared      Code = "PC0312" // the shared state has no such name
	CodeUnknownSource   Code = "PC0313" // no handler has the name
	CodeLateSource      Code = "PC0314" // the handler has not run yet
	CodeUnknownConfig   Code = "PC0315" // no config has the name
	CodeUnknownMember   Code = "PC0316" // event, flow, run or a source has no such member
	CodeRootHere        Code = "PC0317" // the root is not known at this place
	CodeUnknownField    Code = "PC0318" // the schema has no such member
	CodeOperand         Code = "PC0320" // a value of the wrong type
	CodeUnfit           Code = "PC0321" // the result cannot stand here
	CodeNeverEqual      Code = "PC0322" // a comparison that always has the same result
	CodeDuplicateKey    Code = "PC0323" // a key given twice
	CodeMaybeNull       Code = "PC0324" // what may be null, where null fails
	CodeConstant        Code = "PC0325" // a condition that never changes
	CodeImpossibleIn    Code = "PC0326" // an in that never holds
	CodeLoopBody        Code = "PC0327" // a loop whose body does not look at the element
	CodeUnknownFunction Code = "PC0330" // there is no such function
	CodeArguments       Code = "PC0331" // too few or too many arguments
	CodeRefused         Code = "PC0332" // something that would differ when a run is repeated
	CodeMethod          Code = "PC0333" // the call of a method
	CodePattern         Code = "PC0334" // a pattern that cannot be used
)

// exprRules documents the codes of expressions. The examples are expressions
// in a handler that may read the shared state order, total and tip, the handler
// get-order, and the config NOTIFY_SWITCH.
func exprRules() []Rule {
	return []Rule{
		{CodeSyntax, "not an expression",
			"The text after !$ must be one whole expression: values, with operators between them.",
			"order.tariff == 'econom' and", "order.tariff == 'econom' and total > 0"},
		{CodeTooLarge, "expression too large",
			"An expression has at most 4 KiB, 32 brackets inside one another and 300 parts, so that reading and " +
				"computing it is quick whoever wrote it. Compute parts of it in a set handler before.",
			"((((((((((((((((((((((((((((((((((total))))))))))))))))))))))))))))))))))", "total"},
		{CodeForeign, "from another language",
			"Expressions have no lambda functions, comprehensions, tuples, statements or assignments. They compute " +
				"one value from others. Functions such as filter and map take the body for an element, which is #.",
			"[x.price for x in order.items]", "map(order.items, #.price)"},
		{CodeAssign, "= instead of ==",
			"An expression changes nothing: the shared state is set in result. To compare, write ==.",
			"order.tariff = 'econom'", "order.tariff == 'econom'"},
		{CodeSlashes, "//",
			"// divides without remainder in Python and begins a comment elsewhere, so that half of the expression " +
				"would vanish in silence.",
			"total // 2", "floor(total / 2)"},
		{CodeChain, "chained comparison",
			"a < b < c means different things in different languages.",
			"0 < total < 100", "0 < total and total < 100"},
		{CodeUnknownName, "unknown name",
			"An expression begins with event, shared-state, sources, configs, flow, run, item (in for-each) or a name " +
				"that the shared state declares. Strings need quotes.",
			"ordr.tariff", "order.tariff"},
		{CodeHyphen, "subtraction without spaces",
			"A hyphen between letters or digits belongs to the name, as in driver-id. To subtract, write spaces " +
				"around it.",
			"total-tip", "total - tip"},
		{CodeUndeclared, "undeclared shared-state name",
			"A name of the shared state must be declared in the flow or the pipeline, with its first value. Else a " +
				"mistyped name would be null for ever.",
			"shared-state.oder.tariff", "shared-state.order.tariff"},
		{CodeUnknownSource, "unknown handler",
			"sources holds the outcomes of the handlers of this pipeline, by their ids.",
			"sources.get-odrer.response", "sources.get-order.response"},
		{CodeLateSource, "handler that has not run yet",
			"Stages run in order, and so do the handlers of a stage that depend on one another. A handler can read " +
				"the outcomes of handlers that were declared before it.",
			"sources.notify.response", "sources.get-order.response"},
		{CodeUnknownConfig, "unknown config",
			"A config must be declared under configs, with its first value.",
			"configs.NOTIFY_SWICH.enabled", "configs.NOTIFY_SWITCH.enabled"},
		{CodeUnknownMember, "unknown member",
			"event has id, type, source, time, key and payload; flow has id, key and state; run has id, pipeline and " +
				"started; a source has response, status and outcome. What the sender put into an event is in its payload.",
			"event.city", "event.payload.city"},
		{CodeRootHere, "root not known here",
			"Not every place knows every root: the key of a flow is found before any handler runs, and item exists " +
				"inside for-each only.",
			"item.id", "event.payload.id"},
		{CodeOperand, "wrong type",
			"Each operator and function takes values of certain types. Nothing is converted in silence, and only " +
				"true and false are true or false.",
			"'order ' + 7", "'order ' + string(7)"},
		{CodeUnfit, "result of the wrong type",
			"The place of the expression wants a value of another type than it ever gives.",
			"'true'", "true"},
		{CodeNeverEqual, "comparison that never holds",
			"The two sides have different types, so that they are never equal.",
			"event.id == 5", "event.id == '5'"},
		{CodeDuplicateKey, "key given twice",
			"A mapping has each key once; of two, one value would vanish in silence.",
			"{id: 1, id: 2}", "{id: 1, name: 2}"},
		{CodeUnknownFunction, "unknown function",
			"Expressions can call the functions of their library, and no others.",
			"uper(order.tariff)", "upper(order.tariff)"},
		{CodeArguments, "wrong number of arguments",
			"The function takes more or fewer arguments.",
			"upper()", "upper(order.tariff)"},
		{CodeRefused, "not repeatable",
			"A run that goes on after a crash computes its expressions again and must get the same. So they can " +
				"read neither the clock nor chance; what they need comes with the event.",
			"now()", "event.time"},
		{CodeMethod, "methods do not exist",
			"Values are data and have no methods. Functions take the value as their first argument.",
			"order.tariff.upper()", "upper(order.tariff)"},
		{CodePattern, "pattern cannot be used",
			"The pattern of matches must be a string literal, so that it is checked before any event comes, and " +
				"must not be so large that matching takes long. Its syntax is that of RE2.",
			"order.tariff matches '('", "order.tariff matches '^econom'"},
	}
}
