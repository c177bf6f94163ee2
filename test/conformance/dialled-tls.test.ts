import { defineOver } from "./dialled.js";

defineOver("tls");
