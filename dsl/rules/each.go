package rules

import "slices"

// wayRules documents the rules about ways that a run may go.
func wayRules() []Rule {
	return slices.Concat(errorRules(), chooseRules(), eachRules(), awaitRules(), templateRules(), callRules(), compensateRules())
}

// eachRules documents the rules about for-each.
func eachRules() []Rule {
	return []Rule{{
		Code:  ForEach,
		Title: "for-each with nothing to repeat, or not in parallel",
		Why: "for-each repeats a call. A handler that only computes has none, and functions of lists say it shorter. " +
			"Calls that touch the same thing keep their order, so a bound of parallel ones above 1 has no meaning.",
		Before: `pipelines:
  - id: new-order
    shared-state: {total: 0}
    stages:
      - id: count
        handlers:
          - id: total
            for-each: {items: !$ event.payload.lines}
            set: {total: 1}
`,
		After: `pipelines:
  - id: new-order
    shared-state: {total: 0}
    stages:
      - id: count
        handlers:
          - id: total
            set:
              total: !$ |
                sum(event.payload.lines, .price)
`,
	}, {
		Code:  Loop,
		Title: "repeated stage that cannot be meant",
		Why: "A stage with for-each goes through its handlers once for each element, several at the same time. So its handlers set names of one " +
			"element, which the stage declares, and its result makes one value for the run of what all elements have left. What would " +
			"not know which element it is about, such as an awaited event, is refused.",
		Before: `pipelines:
  - id: order-placed
    shared-state: {total: 0}
    stages:
      - id: lines
        for-each: {items: !$ event.payload.lines}
        handlers:
          - id: ask-price
            request: {url: http://127.0.0.1:9084/v1/price, query: {sku: !$ item.sku}}
            result: {total: !$ sources.ask-price.response.price}
`,
		After: `pipelines:
  - id: order-placed
    shared-state: {total: 0}
    stages:
      - id: lines
        for-each: {items: !$ event.payload.lines}
        shared-state: {price: 0}
        handlers:
          - id: ask-price
            request: {url: http://127.0.0.1:9084/v1/price, query: {sku: !$ item.sku}}
            result: {price: !$ sources.ask-price.response.price}
        result:
          total: !$ |
            sum(sources.lines.response, .price)
`,
	}, {
		Code:  Parts,
		Title: "lists inside of lists that are too much for one run",
		Why: "A run keeps what became of each handler, anew for each element of a list and each call of a pipeline. Lists inside of lists multiply: " +
			"a run of millions of handlers would fill the memory of its node. So one run may have 100000 handlers, and is refused more when it gets " +
			"there. Where the lists are known beforehand, the pipeline is refused.",
		Before: `pipelines:
  - id: send-all
    stages:
      - id: regions
        handlers:
          - id: each-region
            for-each: {items: !$ "1..1000"}
            call: {pipeline: send-region, with: {region: !$ item}}
  - id: send-region
    inputs: {region: {type: integer}}
    stages:
      - id: shops
        handlers:
          - id: each-shop
            for-each: {items: !$ "1..1000"}
            request: {url: http://127.0.0.1:9084/v1/send, body: {region: !$ inputs.region, shop: !$ item}}
`,
		After: `pipelines:
  - id: send-all
    stages:
      - id: regions
        handlers:
          - id: each-region
            for-each: {items: !$ "1..1000"}
            emit: {type: send-region, payload: {region: !$ item}}
  - id: send-region
    stages:
      - id: shops
        handlers:
          - id: each-shop
            for-each: {items: !$ "1..1000"}
            request: {url: http://127.0.0.1:9084/v1/send, body: {region: !$ event.payload.region, shop: !$ item}}
`,
	}, {
		Code:  Endless,
		Title: "pipelines that start themselves without end",
		Why: "A run that emits the event of its own pipeline, or of one that leads back to it, starts another run, which does the same. When " +
			"no condition is asked on the way, that never ends, and when a run emits it twice, the runs multiply. The engine bounds both: a chain may " +
			"have 1000 events and 10 more a second, and the runs of a pipeline may start 10000 runs in its loop besides one each, and 10 more a second.",
		Before: `pipelines:
  - id: fetch-pages
    stages:
      - id: page
        handlers:
          - id: get
            request: {url: http://127.0.0.1:9084/v1/pages, query: {page: !$ event.payload.page}}
      - id: next
        handlers:
          - id: next-page
            emit: {type: fetch-pages, payload: {page: !$ event.payload.page + 1}}
`,
		After: `pipelines:
  - id: fetch-pages
    stages:
      - id: page
        handlers:
          - id: get
            request: {url: http://127.0.0.1:9084/v1/pages, query: {page: !$ event.payload.page}}
      - id: next
        handlers:
          - id: next-page
            enabled: !$ sources.get.response.more
            emit: {type: fetch-pages, payload: {page: !$ event.payload.page + 1}}
`,
	}}
}
