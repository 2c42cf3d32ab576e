package rules

// ExprRules documents the codes of expressions. The examples are expressions in a handler. It may read the
// shared state order, total and tip, the handler get-order, and the config NOTIFY_SWITCH.
func ExprRules() []Rule {
	return []Rule{
		{
			ExprSyntax, "not an expression",
			"The text after !$ must be one whole expression: values, with operators between them.",
			"order.tariff == 'econom' and", "order.tariff == 'econom' and total > 0",
		},
		{
			ExprTooLarge, "expression too large",
			"An expression has at most 4 KiB, 300 parts, and 32 brackets inside one another. So it is quick to read and to " +
				"compute. Compute parts of it in a set handler before.",
			"((((((((((((((((((((((((((((((((((total))))))))))))))))))))))))))))))))))", "total",
		},
		{
			ExprForeign, "from another language",
			"Expressions have no lambda functions, comprehensions, tuples, statements or assignments. They compute one value from " +
				"others. Functions such as filter and map take the body for an element, which is #.",
			"[x.price for x in order.items]", "map(order.items, #.price)",
		},
		{
			ExprAssign, "= instead of ==",
			"An expression changes nothing. Set the shared state in result. To compare, write ==.",
			"order.tariff = 'econom'", "order.tariff == 'econom'",
		},
		{
			ExprSlashes, "//",
			"// divides without remainder in Python and begins a comment in other languages. There, half of the expression would " +
				"vanish in silence.",
			"total // 2", "floor(total / 2)",
		},
		{
			ExprChain, "chained comparison",
			"a < b < c means different things in different languages.",
			"0 < total < 100", "0 < total and total < 100",
		},
		{
			ExprUnknownName, "unknown name",
			"An expression begins with event, shared-state, sources, configs, flow, run, item (in for-each) or a declared name of " +
				"the shared state. Strings need quotes.",
			"ordr.tariff", "order.tariff",
		},
		{
			ExprHyphen, "subtraction without spaces",
			"A hyphen between letters or digits belongs to the name, as in driver-id. To subtract, write spaces around it.",
			"total-tip", "total - tip",
		},
		{
			ExprUndeclared, "undeclared shared-state name",
			"The flow or the pipeline must declare each name of the shared state, with its first value. Otherwise a mistyped name " +
				"would be null for ever.",
			"shared-state.oder.tariff", "shared-state.order.tariff",
		},
		{
			ExprUnknownSource, "unknown handler",
			"sources holds the outcomes of the handlers of this pipeline, by their ids.",
			"sources.get-odrer.response", "sources.get-order.response",
		},
		{
			ExprLateSource, "handler that has not run yet",
			"Stages run in order, and so do the handlers of a stage that depend on one another. A handler can read the outcomes " +
				"of handlers that stand before it.",
			"sources.notify.response", "sources.get-order.response",
		},
		{
			ExprUnknownConfig, "unknown config",
			"Declare each config under configs, with its first value.",
			"configs.NOTIFY_SWICH.enabled", "configs.NOTIFY_SWITCH.enabled",
		},
		{
			ExprUnknownMember, "unknown member",
			"event has id, type, source, time, key and payload. flow has id, key and state. run has id, pipeline and started. A " +
				"source has response, status and outcome. The sender's own data is in event.payload. If the flow computes its key, the " +
				"key is in flow.key: event.key is null unless the sender sets it.",
			"event.city", "event.payload.city",
		},
		{
			ExprRootHere, "root not known here",
			"Not every place knows every root. The engine finds the key of a flow before any handler runs, and item exists only " +
				"inside for-each.",
			"item.id", "event.payload.id",
		},
		{
			ExprOperand, "wrong type",
			"Each operator and function takes values of certain types. Nothing is converted in silence, and only true and false " +
				"are true or false.",
			"'order ' + 7", "'order ' + string(7)",
		},
		{
			ExprUnfit, "result of the wrong type",
			"The expression never has a value of the type that its place takes.",
			"'true'", "true",
		},
		{
			ExprNeverEqual, "comparison that never holds",
			"The two sides have different types, so they are never equal.",
			"event.id == 5", "event.id == '5'",
		},
		{
			ExprDuplicateKey, "key given twice",
			"A mapping has each key once. Of two, one value would vanish in silence.",
			"{id: 1, id: 2}", "{id: 1, name: 2}",
		},
		{
			ExprUnknownFunction, "unknown function",
			"Expressions can call the functions of their library, and no others.",
			"uper(order.tariff)", "upper(order.tariff)",
		},
		{
			ExprArguments, "wrong number of arguments",
			"The function takes more or fewer arguments.",
			"upper()", "upper(order.tariff)",
		},
		{
			ExprRefused, "not repeatable",
			"After a crash, a run computes its expressions again and must get the same values. So expressions read neither the " +
				"clock nor chance. Put such values into the event.",
			"now()", "event.time",
		},
		{
			ExprMethod, "methods do not exist",
			"Values are data and have no methods. Functions take the value as their first argument.",
			"order.tariff.upper()", "upper(order.tariff)",
		},
		{
			ExprPattern, "pattern cannot be used",
			"The pattern of matches must be a string literal, so that procaas can check it before any event arrives. It must also " +
				"be small, so that matching is quick. Its syntax is that of RE2.",
			"order.tariff matches '('", "order.tariff matches '^econom'",
		},
	}
}

// exprExamples returns the rules with examples that are whole files. The handlers around the reading one
// declare and set what it reads.
func exprExamples() []Rule {
	rules := ExprRules()
	for i := range rules {
		field := "set"
		if rules[i].Code == ExprUnfit {
			field = "enabled"
		}
		rules[i].Before = inExample(field, rules[i].Before)
		rules[i].After = inExample(field, rules[i].After)
	}
	return rules
}

func inExample(field, expression string) string {
	text := "set: {seen: true}\nenabled: !$ |\n  " + expression
	if field == "set" {
		text = "set:\n  seen: !$ |\n    " + expression
	}
	return `configs:
  NOTIFY_SWITCH: {enabled: true}
pipelines:
  - id: new-order
    shared-state: {order: {}, total: 0, tip: 0, seen: null}
    stages:
      - id: fetch
        handlers:
          - {id: get-order, request: {url: http://127.0.0.1:9081/v1/orders}}
      - id: look
        handlers:
          - id: look
` + Indented(12, text) + `      - id: tell
        handlers:
          - {id: notify, request: {url: http://127.0.0.1:9083/v1/push}}
`
}
