// Weftline for opencode: gives what happens to the resident process of Weftline, and adds what others know to the first
// prompt. Whatever goes wrong, opencode goes on. Copied by: weftline init opencode --plugin
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { request } from "node:http"
import { homedir } from "node:os"
import { join } from "node:path"

const folder = process.env.WEFTLINE_HOOKS_DIR || join(homedir(), ".weftline", "hooks")
const socketPath = join(folder, "socket")
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

function send(input, milliseconds, path = "/opencode") {
  return new Promise((resolve, reject) => {
    const body = JSON.stringify(input)
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) }
    const options = { socketPath, path, method: "POST", headers, timeout: milliseconds }
    const sent = request(options, (answer) => {
      let text = ""
      answer.on("data", (part) => (text += part))
      answer.on("end", () => resolve(text ? JSON.parse(text) : {}))
    })
    sent.on("timeout", () => sent.destroy(new Error("timeout")))
    sent.on("error", reject)
    sent.end(body)
  })
}

let starting
async function start() {
  const own = join(folder, "weftline")
  const program = existsSync(own) ? own : "weftline"
  const child = spawn(program, ["hooks", "serve"], { detached: true, stdio: "ignore" })
  child.on("error", () => {})
  child.unref()
  for (let tries = 0; tries < 50 && !existsSync(socketPath); tries++) await wait(200)
}

async function hook(input) {
  if (existsSync(join(folder, "off"))) return {}
  try {
    return await send(input, 250)
  } catch (error) {
    if (error.code !== "ENOENT" && error.code !== "ECONNREFUSED") return {}
    starting ??= start().finally(() => (starting = undefined))
    starting.then(() => send(input, 5000, "/late/opencode")).catch(() => {})
    return {}
  }
}

export const Weftline = async ({ directory, client }) => {
  const texts = new Map()
  const parents = new Map()
  const seen = new Set()
  const base = (sessionID, name) => {
    const parent = parents.get(sessionID)
    return {
      hook_event_name: name,
      cwd: directory,
      session_id: parent ?? sessionID,
      ...(parent ? { agent_id: sessionID } : {}),
    }
  }
  return {
    event: async ({ event }) => {
      const about = event.properties ?? {}
      const id = about.sessionID ?? about.info?.id
      if (event.type === "session.created" && about.info?.parentID) parents.set(id, about.info.parentID)
      else if (event.type === "message.part.updated" && about.part?.type === "text") texts.set(about.part.sessionID, about.part.text)
      else if (event.type === "session.idle" && texts.has(id)) {
        await hook({ ...base(id, parents.has(id) ? "SubagentStop" : "Stop"), last_assistant_message: texts.get(id) })
        texts.delete(id)
      } else if (event.type === "session.deleted") await hook(base(id, "SessionEnd"))
      else if (event.type === "server.instance.disposed") for (const each of seen) await hook(base(each, "SessionEnd"))
    },
    "chat.message": async (input, output) => {
      const prompt = output.parts.filter((part) => part.type === "text").map((part) => part.text).join("\n")
      if (!parents.has(input.sessionID)) seen.add(input.sessionID)
      const name = parents.has(input.sessionID) ? "SubagentStart" : "UserPromptSubmit"
      const answer = await hook({ ...base(input.sessionID, name), prompt })
      const context = answer?.hookSpecificOutput?.additionalContext
      const first = output.parts.find((part) => part.type === "text")
      if (context && first) first.text = `${context}\n\n${first.text}`
    },
    "tool.execute.after": async (input, output) => {
      const { tool, sessionID, callID, args } = input
      await hook({ ...base(sessionID, "PostToolUse"), tool_name: tool, tool_use_id: callID, tool_input: args ?? {}, tool_response: output.output })
    },
    "experimental.session.compacting": async (input) => {
      await hook(base(input.sessionID, "PreCompact"))
    },
  }
}
