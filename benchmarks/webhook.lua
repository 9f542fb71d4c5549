-- Sends the reviews of a file, 8 KiB each, one after another; reports as one line of JSON.
--
-- Each review that is sent has a uid of its own, and each round of the file has owners of its own:
-- the first half of the digits that end an owner's uid is the number of the round. The last argument is
-- the number of rounds that the server has seen already.

local parts, at, round, sent = {}, 0, 0, 0

local function cut(text, uid)
  local _, last = assert(text:find(uid, 1, true))
  return last
end

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  local size = tonumber(arguments[2])
  local headers = { ["Content-Type"] = "application/json" }
  for body in function() return file:read(size) end do
    local text = wrk.format("POST", arguments[3], headers, body)
    local review, owner = cut(text, arguments[4]), cut(text, arguments[5])
    parts[#parts + 1] = {
      text:sub(1, review), text:sub(review + 13, owner), text:sub(owner + 7)
    }
  end
  file:close()
  round = tonumber(arguments[6])
end

function request()
  at = at % #parts + 1
  if at == 1 then round = round + 1 end
  sent = sent + 1
  local part = parts[at]
  return table.concat({
    part[1], string.format("%012d", sent), part[2], string.format("%06d", round % 1000000), part[3]
  })
end

function done(summary, latency, _)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.stdout:write(string.format(
    '\n{"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"failed":%d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, failed))
end
