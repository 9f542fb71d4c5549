-- Sends the reviews of a file, 8 KiB each, one after another; reports as one line of JSON.

local requests, at = {}, 0

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  local size = tonumber(arguments[2])
  local headers = { ["Content-Type"] = "application/json" }
  for body in function() return file:read(size) end do
    requests[#requests + 1] = wrk.format("POST", arguments[3], headers, body)
  end
  file:close()
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency, _)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.stdout:write(string.format(
    '\n{"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"failed":%d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, failed))
end
