package rules

import "slices"

// wayRules documents rules about loops, branches, errors and compensations.
func wayRules() []Rule {
	return slices.Concat(errorRules(), chooseRules(), eachRules(), awaitRules(), templateRules(), callRules(), compensateRules())
}

// eachRules documents the rules about for-each.
func eachRules() []Rule {
	return []Rule{{
		Code:  ForEach,
		Title: "for-each with nothing to repeat, or not in parallel",
		Why: "for-each repeats a call. For a computation without a call, use a function of lists instead. Calls that touch " +
			"the same thing keep their order, so max-parallel above 1 means nothing for them.",
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
		Title: "repeated stage that cannot work",
		Why: "A stage with for-each runs its handlers once for each element, several at the same time. So its handlers set " +
			"names that the stage declares, one value for each element. Its result makes one value of them for the run. An awaited " +
			"event cannot tell its element, so it is refused.",
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
		Why: "A run keeps a record of each handler, for each element of a list and each call of a pipeline. Lists inside of " +
			"lists multiply: millions of handlers would fill the memory of a node. So one run may have 100000 handlers. When the " +
			"sizes are known beforehand, validate refuses the pipeline.",
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
		Why: "A run that emits the event of its own pipeline starts another run, and that one the next. Without a condition " +
			"on the way, this never ends. A run that emits the event twice even doubles the runs. The engine bounds both. A chain may " +
			"have 1000 events, and 10 more a second. Each run of a pipeline may start one run in its loop. All of them together may " +
			"start 10000 others, and 10 more a second.",
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
